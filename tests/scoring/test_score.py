"""Scoring a run on a benchmark."""

from pathlib import Path

import pytest

from adafuse.benchmarks.prepare import PreparedRow
from adafuse.errors import UserError
from adafuse.scoring.metrics import METRICS, metric_named
from adafuse.scoring.score import read_score, score_rows, write_score


def row(name: str, *answers: str) -> PreparedRow:
    return PreparedRow(name, 0, f"Question: {name}", "0" * 64, answers or ("right",))


def prediction(name: str, text: str = "right", reason: str = "stop") -> dict[str, str]:
    return {"id": name, "text": text, "stop_reason": reason}


ROWS = [row("a"), row("b"), row("c"), row("d")]


def test_missing_empty_and_failed_rows_count_as_wrong_and_are_counted() -> None:
    predictions = [prediction("a"), prediction("b", " "), prediction("c", reason="error")]
    score = score_rows(ROWS, predictions, "exact_match", benchmark="qa", run="x")
    assert (score.n, score.value) == (4, 25.0)
    assert (score.missing, score.empty, score.failed) == (1, 1, 1)
    assert 0 < score.low < 25 < score.high < 100


def test_a_failed_example_is_wrong_even_with_the_right_text() -> None:
    failed = [prediction(each.id, reason="error") for each in ROWS]
    for metric in ("exact_match", "bleu"):
        assert score_rows(ROWS, failed, metric, benchmark="qa", run="x").value == 0


def test_a_prediction_of_another_benchmark_is_refused() -> None:
    with pytest.raises(UserError, match="'stranger'"):
        score_rows(ROWS, [prediction("stranger")], "exact_match", benchmark="qa", run="x")


def test_a_gold_answer_without_a_number_is_refused() -> None:
    with pytest.raises(UserError, match="'no number here' of row 'a'"):
        score_rows([row("a", "no number here")], [], "accuracy", benchmark="math", run="x")


def test_accuracy_takes_any_gold_answer() -> None:
    rows = [row("a", "4", "5"), row("b", "6")]
    predictions = [prediction("a", "\\boxed{5}"), prediction("b", "7")]
    assert score_rows(rows, predictions, "accuracy", benchmark="math", run="x").value == 50


def test_an_unknown_metric_is_named_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"unknown metric 'rouge'; known are: exact_match"):
        metric_named("rouge", "benchmarks.qa")


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_gives_100_to_gold_answers(metric: str) -> None:
    rows = [row(str(number), f"the answer is {number} big apples") for number in range(12)]
    gold = [prediction(each.id, each.answers[0]) for each in rows]
    score = score_rows(rows, gold, metric, benchmark="b", run="x")
    assert score.value == pytest.approx(100)
    assert score.low <= score.high == pytest.approx(100)


def test_a_score_is_read_back_as_written(tmp_path: Path) -> None:
    score = score_rows(ROWS, [prediction("a")], "exact_match", benchmark="qa", run="x")
    write_score(tmp_path / "score.json", score)
    assert read_score(tmp_path / "score.json") == score


def test_a_torn_score_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "score.json").write_text('{"benchmark": "qa"')
    with pytest.raises(UserError, match="is no score"):
        read_score(tmp_path / "score.json")
