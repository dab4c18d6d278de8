"""What only the published scorer accepts."""

import csv
import io

from adafuse.benchmarks.rows import Row
from adafuse.metrics.audit import Audit, audit
from adafuse.metrics.score import evaluate
from adafuse.report.tables import audit_table, to_csv

ROWS = [Row(name, f"{name}?", ("Paris",)) for name in "abcde"]
TEXTS = {"a": "Paris", "b": "not | Paris", "c": "pari", "d": "London"}


def audited(scorer: str, rows: list[Row], texts: dict[str, str]) -> Audit:
    predictions = [{"id": name, "text": text} for name, text in texts.items()]
    strict, published = (
        evaluate(rows, predictions, scorer, protocol, benchmark="qa", run="x").outcomes
        for protocol in ("strict", "published")
    )
    return audit(strict, published, scorer, benchmark="qa", run="x")


def test_what_only_published_accepts_is_listed_with_its_rule() -> None:
    found = audited("nq", ROWS, TEXTS)
    assert (found.n, found.strict, found.published, found.only_strict) == (5, 1, 3, 0)
    assert [(each.id, each.rule) for each in found.accepted] == [
        ("b", "containment"),
        ("c", "equal"),
    ]


def test_an_example_shows_the_gold_answer_for_which_it_was_accepted() -> None:
    rows = [Row("a", "?", ("brain", "not liver", "the livers", "liver"))]
    found = audited("nq", rows, {"a": "in the liver"})
    assert [(each.rule, each.gold) for each in found.accepted] == [("equal", "the livers")]
    assert "| equal | a | in the liver | the livers |" in audit_table([found]).markdown


def test_an_example_says_that_its_beginning_is_left_out() -> None:
    rows = [Row("a", "Where?", ("livers",))]
    text = f"{'the ' * 30}liver"
    assert (
        f"| a | …{text[-80:]} | livers |"
        in audit_table([audited("nq", rows, {"a": text})]).markdown
    )


def test_answers_that_only_strict_accepts_are_counted() -> None:
    rows = [Row("a", "?", ("the answer is 12",))]
    assert audited("gsm8k", rows, {"a": "\\boxed{3} no, \\boxed{12}"}).only_strict == 1


def test_numbers_and_substrings_are_counted() -> None:
    rows = [Row("a", "?", ("7",))]
    assert audited("triviaqa", rows, {"a": "seven dwarves"}).rules == {"number": 1}
    rows = [Row("a", "?", ("the answer is 18",))]
    assert audited("gsm8k", rows, {"a": "\\boxed{8}"}).rules == {"substring": 1}


def test_empty_and_missing_answers_are_counted() -> None:
    found = audited("nq", ROWS, {**TEXTS, "a": " \n"})
    assert found.empty == 2
    (row,) = csv.DictReader(io.StringIO(to_csv(audit_table([found]))))
    assert row["empty"] == "2"


def test_translations_count_what_is_dropped() -> None:
    found = audited("translation_13a", ROWS, {"a": "Paris", "b": ""})
    assert found.rules == {"dropped": 4}


def test_the_csv_has_a_column_per_rule() -> None:
    row = next(csv.DictReader(io.StringIO(to_csv(audit_table([audited("nq", ROWS, TEXTS)])))))
    assert (row["only_published"], row["rule_containment"], row["rule_equal"]) == ("2", "1", "1")


def test_the_markdown_shows_escaped_examples() -> None:
    text = audit_table([audited("nq", ROWS, TEXTS)]).markdown
    assert "| containment | b | not \\| Paris | Paris |" in text
    lines = [line.replace("\\|", "") for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {14, 5}
