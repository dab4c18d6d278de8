"""The paper's numbers: the averages and the headline gain of the note follow from the cells."""

from pathlib import Path

import pytest
import yaml

from adafuse.errors import UserError
from adafuse.metrics.published import Published, read_published
from adafuse.report.tables import PAPER_TITLE, published_section

FILE = Path(__file__).parents[2] / "config" / "published.yaml"
PUBLISHED = read_published(FILE)
TABLE_1 = PUBLISHED.tables[0]
SIX = TABLE_1.benchmarks
ROWS = {row.name: row for row in TABLE_1.rows}


def test_exactly_two_rows_print_another_average_than_their_cells_give() -> None:
    assert len(ROWS) == 10 and len(SIX) == 6
    rows = {row.name: row for row in TABLE_1.rows if row.flagged}
    assert {name: (row.printed_average, round(row.average, 2)) for name, row in rows.items()} == {
        "SweetSpan": (59.16, 57.48),
        "LLM-Blender": (54.97, 55.47),
    }
    for row in rows.values():
        assert f"prints {row.printed_average}" in PUBLISHED.note
        assert f"give {row.average:.2f}" in PUBLISHED.note


def test_the_gains_follow_from_the_cells_and_averages() -> None:
    ours = ROWS["AdaFuse fixed pair"]
    baselines = [ROWS[name] for name in ("LLM-Blender", "DeePEn", "SweetSpan", "UniTE")]

    def gain(value) -> float:
        return 100 * (value(ours) / max(map(value, baselines)) - 1)

    (gains,) = PUBLISHED.tables[1].rows
    for number, printed in enumerate(gains.values):
        assert gain(lambda row, number=number: row.values[number]) == pytest.approx(
            printed, abs=0.01
        )
    printed = f"{gain(lambda row: row.printed_average):.2f}"
    assert f"{printed} % against the printed" in PUBLISHED.note
    assert PUBLISHED.tables[1].setting.endswith(printed)
    assert f"{gain(lambda row: row.average):.1f} % against those" in PUBLISHED.note


def test_two_models_are_the_best_two_of_each_benchmark() -> None:
    top, fixed = ROWS["AdaFuse top-2"], ROWS["AdaFuse fixed pair"]
    singles = {name: ROWS[name] for name in ROWS if name.endswith(("v0.3", "8B"))}
    pair = {"Mistral-7B-v0.3", "LLaMA-3.1-8B"}
    for number in range(len(SIX)):
        best = sorted(singles, key=lambda name, number=number: -singles[name].values[number])[:2]
        assert (top.values[number] == fixed.values[number]) == (set(best) == pair)


def test_the_shares_of_words_per_round_are_all_rounds() -> None:
    words = PUBLISHED.tables[3]
    for shares in zip(*(row.values for row in words.rows), strict=True):
        assert sum(shares) == pytest.approx(100)


def changed(tmp_path: Path, change) -> Path:
    values = yaml.safe_load(FILE.read_text())
    change(values)
    path = tmp_path / "changed.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda v: v.update(extra=1), "unknown key 'extra'; known are: source, protocol"),
        (
            lambda v: v["tables"][0]["rows"][0].update(mean=50),
            r"tables.0.rows.0: unknown key 'mean'",
        ),
        (lambda v: v["tables"][0]["benchmarks"].pop(), "6 values must be 5"),
        (
            lambda v: v["tables"][0].update(benchmarks=["squad", *SIX[1:5], "squad"]),
            "Table 1.*: benchmarks names 'squad' twice; correct one of them",
        ),
        (
            lambda v: v["tables"][2]["rows"][0].update(name="UniTE"),
            "two rows have the name 'UniTE'",
        ),
        (lambda v: v["tables"][0]["rows"][0]["values"].append(101), "values.6 must be less than"),
        (
            lambda v: v["tables"][0].update(rows=[{"name": "Shares", "values": [0.42] * 6}]),
            "all values are at most 1, as shares are; give percent",
        ),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(tmp_path, change, sentence) -> None:
    with pytest.raises(UserError, match=sentence):
        read_published(changed(tmp_path, change))


def test_a_missing_or_broken_file_is_one_sentence(tmp_path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_published(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("a: [")
    with pytest.raises(UserError, match="cannot be read"):
        read_published(tmp_path / "bad.yaml")


def test_the_section_is_a_table_of_its_own_with_both_averages() -> None:
    text = published_section(PUBLISHED, SIX, "published")
    assert text.startswith(PAPER_TITLE)
    assert "compare these numbers only with runs scored under published" in text
    assert "| SweetSpan | 37.59 |" in text and "| 59.16 \\* | 57.48 \\* |" in text
    assert text.count("\n| ") == 12 + 3 + 5 + 5  # of each table head, rule and rows
    assert "### Table 2" in text and "| InternLM3 + LLaMA + Mistral | 42.63 |" in text
    assert "### Section 4.3" in text and "| 3 words | 4.18 | 21.09 | 46.09 |" in text
    assert "10.0 %" in text


def test_under_strict_it_warns_that_the_table_above_is_not_comparable() -> None:
    assert ", not strict as the table above" in published_section(PUBLISHED, SIX, "strict")


def test_only_the_benchmarks_of_our_table_are_shown_in_its_order() -> None:
    text = published_section(PUBLISHED, ["toy_qa", "squad", "natural_questions"], "published")
    assert "| row | squad | natural\\_questions |\n" in text
    assert "| UniTE | 82.17 | 38.95 |" in text
    assert "average as printed" not in text
    assert published_section(PUBLISHED, ["toy_qa"], "strict") == ""


def test_the_records_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        PUBLISHED.protocol = "strict"  # type: ignore[misc]
    assert isinstance(PUBLISHED, Published)
