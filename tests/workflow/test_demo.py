"""The toy configuration as `make demo` runs it, from benchmark to comparison table."""

import csv
from pathlib import Path

import pytest

from adafuse.storage.parquet import read_rows
from tests.guard.record import differences, load, of_results

from .conftest import Workplace

pytestmark = pytest.mark.soak

SINGLE = ("mistral", "llama", "qwen3", "internlm3")


@pytest.fixture(scope="module")
def table(demo: Workplace) -> dict[str, dict[str, str]]:
    """The rows of the main table by run."""
    with Path(demo.folder, "results/tables/main.csv").open() as file:
        return {row["run"]: row for row in csv.DictReader(file)}


def test_fusing_the_default_pair_beats_every_single_model(
    table: dict[str, dict[str, str]],
) -> None:
    best = max(float(table[name]["macro_average"]) for name in SINGLE)
    assert float(table["adafuse"]["macro_average"]) > best


def test_the_table_compares_branching_lengths_and_fusion_rules(
    table: dict[str, dict[str, str]],
) -> None:
    others = {"adafuse_b3", "fixed_1", "fixed_3", "adafuse_mixture", "adafuse_most_confident"}
    assert others <= table.keys()
    assert all(row["macro_average"] for row in table.values())
    assert table["adafuse"]["models"] == "mistral+llama"


def test_intervals_hold_their_values(table: dict[str, dict[str, str]]) -> None:
    for row in table.values():
        for name in ("toy_qa", "toy_math", "toy_en_de", "toy_de_en"):
            assert float(row[f"{name}_low"]) <= float(row[name]) <= float(row[f"{name}_high"])
            assert int(row[f"{name}_n"]) >= 60


def test_the_published_protocol_has_tables_of_its_own_and_an_audit(demo: Workplace) -> None:
    tables = demo.folder / "results/tables"
    columns = {}
    for name in ("main.csv", "main_published.csv"):
        with (tables / name).open() as file:
            columns[name] = list(csv.DictReader(file))
    strict, published = columns.values()
    assert [row["run"] for row in strict] == [row["run"] for row in published]
    assert strict[0].keys() == published[0].keys()
    assert all(
        float(b["toy_qa"]) >= float(a["toy_qa"]) for a, b in zip(strict, published, strict=True)
    )
    text = (tables / "main.md").read_text()
    assert text.index("strict scoring") < text.index("## Published scorer")
    assert "## Published minus strict, in points" in text
    with (tables / "audit.csv").open() as file:
        audits = list(csv.DictReader(file))
    assert len(audits) == 4 * len(strict)
    assert (tables / "audit.md").read_text().startswith("# What only the published scorer")
    outcomes = demo.folder / "results/scores/published/toy_qa/adafuse.outcomes.parquet"
    rows = read_rows(outcomes)
    assert set(rows[0]) == {"id", "value", "hypothesis", "references"}
    assert len(rows) == int(published[0]["toy_qa_n"])


def test_every_row_score_and_cell_is_as_recorded(demo: Workplace) -> None:
    assert not [*differences(of_results(demo.folder / "results"), load("demo"))]


def test_running_it_again_does_nothing(demo: Workplace) -> None:
    assert not demo.plan().jobs


def test_the_statistics_of_the_benchmarks_stand_beside_the_table(demo: Workplace) -> None:
    with Path(demo.folder, "results/tables/datasets.csv").open() as file:
        lines = {row["benchmark"]: row for row in csv.DictReader(file)}
    assert list(lines) == ["toy_qa", "toy_math", "toy_en_de", "toy_de_en"]
    assert all(float(line["question_chars"]) > 10 for line in lines.values())
