"""Scoring a run on a benchmark."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from adafuse import plugins
from adafuse.benchmarks.shards import PreparedRow
from adafuse.errors import UserError
from adafuse.metrics.intervals import Estimate
from adafuse.metrics.registry import SCORERS, scorer_named
from adafuse.metrics.score import (
    NEVER_RIGHT,
    Score,
    evaluate,
    read_outcomes,
    read_score,
    write_outcomes,
    write_score,
)
from adafuse.metrics.scorer import PROTOCOLS, Judgement, Metric, Outcome, Prediction, Scorer

OFFLINE = [name for name in SCORERS if name != "translation"]


def score_rows(*given, **names) -> Score:
    """The score alone, without what became of each example."""
    return evaluate(*given, **names).score


def row(name: str, *answers: str) -> PreparedRow:
    return PreparedRow(name, f"Question: {name}", name, answers or ("right",))


def prediction(name: str, text: str = "right", reason: str = "stop") -> dict[str, str]:
    return {"id": name, "text": text, "stop_reason": reason}


ROWS = [row("a"), row("b"), row("c"), row("d")]
NAMES = {"benchmark": "qa", "run": "x"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_missing_empty_and_failed_rows_count_as_wrong_and_are_counted(protocol: str) -> None:
    predictions = [prediction("a"), prediction("b", " "), prediction("c", reason="error")]
    score = score_rows(ROWS, predictions, "squad", protocol, **NAMES)
    assert (score.n, score.main.value) == (4, 25.0)
    assert (score.missing, score.empty, score.failed) == (1, 1, 1)
    assert 0 < score.main.low < 25 < score.main.high < 100


@pytest.mark.parametrize("scorer", OFFLINE)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_failed_and_empty_texts_score_0_everywhere(scorer: str, protocol: str) -> None:
    rows = [row("a", "the answer is 3"), row("b", "the answer is 4")]
    for text, reason in (("the answer is 3", "error"), ("", "stop"), (" \n", "stop")):
        texts = [prediction(each.id, text, reason) for each in rows]
        score = score_rows(rows, texts, scorer, protocol, **NAMES)
        assert {estimate.value for estimate in score.metrics.values()} == {0}


def test_a_prediction_of_another_benchmark_is_refused() -> None:
    with pytest.raises(UserError, match="'stranger'"):
        score_rows(ROWS, [prediction("stranger")], "squad", **NAMES)


def test_a_gold_answer_without_a_number_is_refused() -> None:
    with pytest.raises(UserError, match="'no number here' of row 'a'"):
        score_rows([row("a", "no number here")], [], "gsm8k", **NAMES)


def test_accuracy_takes_any_gold_answer() -> None:
    rows = [row("a", "4", "5"), row("b", "6")]
    predictions = [prediction("a", "\\boxed{5}"), prediction("b", "7")]
    assert score_rows(rows, predictions, "gsm8k", **NAMES).main.value == 50


def test_unknown_metrics_and_protocols_are_named_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"unknown scorer 'rouge'; known are: nq, squad"):
        scorer_named("rouge", "benchmarks.qa")
    with pytest.raises(UserError, match=r"unknown protocol 'lax'; known are: strict, published"):
        score_rows(ROWS, [], "squad", "lax", **NAMES)


@pytest.mark.parametrize("scorer", OFFLINE)
def test_every_scorer_gives_100_to_gold_answers(scorer: str) -> None:
    rows = [row(str(number), f"the answer is {number} big apples") for number in range(12)]
    gold = [prediction(each.id, each.answers[0]) for each in rows]
    score = score_rows(rows, gold, scorer, **NAMES)
    for estimate in score.metrics.values():
        assert estimate.value == pytest.approx(100)
        assert estimate.high in (None, pytest.approx(100))


def test_strict_leaves_out_worked_examples_and_published_keeps_them() -> None:
    predictions = [prediction("a"), prediction("b", "wrong")]
    strict, published = (
        evaluate(ROWS, predictions, "squad", protocol, **NAMES, exclude={"a", "d"})
        for protocol in PROTOCOLS
    )
    assert (strict.score.n, strict.score.excluded, strict.score.missing) == (2, 2, 1)
    assert strict.score.main.value == 0
    assert [outcome.id for outcome in strict.outcomes] == ["b", "c"]
    assert (published.score.n, published.score.excluded) == (4, 0)
    with pytest.raises(UserError, match="all rows are excluded"):
        evaluate(ROWS, predictions, "squad", **NAMES, exclude={"a", "b", "c", "d"})


def test_every_example_has_an_outcome_whose_mean_is_the_score(tmp_path: Path) -> None:
    result = evaluate(ROWS, [prediction("a"), prediction("b", "no")], "squad", **NAMES)
    assert [(o.id, o.text, o.value) for o in result.outcomes] == [
        ("a", "right", 1.0), ("b", "no", 0.0), ("c", "", 0.0), ("d", "", 0.0)
    ]  # fmt: skip
    write_outcomes(tmp_path / "o.parquet", result.outcomes, {})
    assert read_outcomes(tmp_path / "o.parquet") == result.outcomes


def test_a_score_is_read_back_as_written(tmp_path: Path) -> None:
    score = score_rows(ROWS, [prediction("a")], "squad", **NAMES)
    write_score(tmp_path / "score.json", score)
    assert read_score(tmp_path / "score.json") == score


@pytest.mark.parametrize("text", ['{"benchmark": "qa"', "{}", "[]", '{"metrics": {"f1": 3}}'])
def test_a_torn_score_file_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "score.json").write_text(text)
    with pytest.raises(UserError, match="is not a score"):
        read_score(tmp_path / "score.json")


@pytest.mark.parametrize(
    ("scorer", "gold", "never"),
    [
        ("nq", "---", True),
        ("squad", ".", True),
        ("squad", "The a", True),
        ("triviaqa", "\u2018\u2019_", True),
        ("squad", "\u2018", False),
        ("nq", "\u200b", True),
        ("translation_13a", "\ufeff", True),
        ("translation_13a", ".", False),
        ("nq", "0", False),
        ("squad", "first line\nsecond line", True),
        ("squad", "\nthe only line\n...", False),
        ("translation_13a", "first line\nsecond line", False),
    ],
)
def test_rows_whose_accepted_answers_no_text_equals_are_counted(
    scorer: str, gold: str, never: bool
) -> None:
    rows = [row("a", gold), row("b", gold, "right"), row("c")]
    texts = [prediction(each.id, gold) for each in rows]
    score = score_rows(rows, texts, scorer, **NAMES)
    assert score.details.get(NEVER_RIGHT, 0) == never
    assert NEVER_RIGHT not in score_rows(rows, texts, scorer, "published", **NAMES).details
    told = scorer_named(scorer, "x").hopeless({r.id: r.answers for r in rows}, "here")
    assert (told is not None) == never
    if told is not None:
        assert told.startswith("here: 1 of 3 rows can never be right, for scorer ")
        assert f"'a' ({gold!r}); correct them" in told
        with pytest.raises(UserError, match="here: 1 of 1 rows can never be right"):
            scorer_named(scorer, "x").hopeless({"a": (gold,)}, "here")


def lower(values: Callable[[Sequence[Prediction]], list[Any]], score: Any = None) -> Scorer:
    """A scorer that is better lower, with these values, and their mean or another score."""

    def rules(examples: Sequence[Prediction]) -> Judgement:
        found = values(examples)
        pairs = zip(examples, found, strict=False)
        outcomes = tuple(Outcome(e.id, e.text, e.answers, value) for e, value in pairs)
        mean = sum(found) / len(found) if score is None else score
        return Judgement(outcomes, {"extra": Estimate(mean)})

    return Scorer("extra", "", (Metric("extra", "extra", higher_is_better=False),), rules)


def returning(found: Any) -> Scorer:
    """A scorer that returns this, or what it returns for the rows."""
    rules = found if callable(found) else lambda rows: found
    return replace(lower(lambda rows: []), strict=rules)


def two_metrics(*share: float) -> Scorer:
    """A scorer with a second, binary metric of this estimate."""

    def rules(rows: Sequence[Prediction]) -> Judgement:
        return Judgement(_ones(rows), {"extra": Estimate(1.0), "share": Estimate(*share)})

    second = Metric("share", "share", binary=True)
    return replace(returning(rules), metrics=(*returning(rules).metrics, second))


SAME = lower(lambda rows: [0.0] * len(rows))


def _pattern(says: str) -> str:
    return re.escape(says.removesuffix("$")) + "$" * says.endswith("$")


def _ones(rows: Sequence[Prediction]) -> tuple[Outcome, ...]:
    return tuple(Outcome(e.id, e.text, e.answers, 1.0) for e in rows)


@pytest.mark.parametrize(
    ("scorer", "says"),
    [
        (lower(lambda rows: [1.0, float("nan"), 1.0, 1.0], 1.0), "gives row 'b' the value nan"),
        (lower(lambda rows: [1.0, "2", 1.0, 1.0], 1.0), "gives row 'b' the value '2'"),
        (lower(lambda rows: [1.0] * 3), "returns 3 outcomes of 4 rows"),
        (
            lower(lambda rows: [0.5] * 4, 50.0),
            "reports the score 50, but its outcomes give 0.5: a score is the mean of their values;"
            " intervals.mean takes values from 0 to 1, those of outcomes go to 100",
        ),
        (
            lower(lambda rows: [3.0] * 4, 10.0),
            "reports the score 10, but its outcomes give 3: a score is the mean of their values$",
        ),
        (returning(Judgement([], {})), "returns list as outcomes; return a tuple"),
        (returning(Judgement((), [])), "returns list as metrics; return a dict"),
        (
            replace(lower(lambda rows: [1.0] * 4), metrics=(Metric("extra", "", binary=True),)),
            "reports the score 1, but its outcomes give 100: a score is the mean of their values,"
            " in percent$",
        ),
        (
            replace(lower(lambda rows: [50.0] * 4), metrics=(Metric("extra", "", binary=True),)),
            "gives row 'a' the value 50.0; return 1 or 0, as its metric is binary",
        ),
        (
            returning(lambda rows: Judgement(_ones(rows), {"extra": 1.0})),
            "reports 1.0 as 'extra'; return an intervals.Estimate",
        ),
        (lower(lambda rows: [1.0] * 4, float("inf")), "reports Estimate(value=inf"),
        (
            returning(lambda rows: Judgement(_ones(rows), {"extra": Estimate(1.0, 1.5, 0.5)})),
            "reports Estimate(value=1.0, low=1.5, high=0.5) as 'extra'; return finite numbers,"
            " low <= value <= high$",
        ),
        (replace(lower(lambda rows: [1.0] * 4), strict=lambda rows: None), "returns NoneType"),
        (
            returning(lambda rows: Judgement(_ones(rows), {"extra": Estimate(1.0)}, {"n": 3.5})),
            "reports the detail 'n': 3.5; give texts and whole numbers",
        ),
        (
            returning(lambda rows: Judgement((Outcome("a", None, (), 1.0), *_ones(rows)[1:]), {})),
            "gives row 'a' a text or answers that are none; return texts",
        ),
        (
            two_metrics(0.5),
            "reports Estimate(value=0.5, low=None, high=None) as 'share'; return the",
        ),
        (
            two_metrics(50.0, -3.0, 103.0),
            "reports Estimate(value=50.0, low=-3.0, high=103.0) as 'sh",
        ),
        (
            replace(lower(lambda rows: [1.0] * 4), metrics=(Metric("other", "other"),)),
            "reports ['extra'], but declares ['other']",
        ),
    ],
)
def test_a_scorer_that_does_not_keep_to_its_form_is_refused_by_name(
    scorer: Scorer, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SCORERS, "extra", scorer)
    with pytest.raises(UserError, match=f"^scorer 'extra' {_pattern(says)}"):
        score_rows(ROWS, [prediction("a")], "extra", **NAMES)


def test_a_scorer_cannot_leave_rows_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def rules(rows: Any) -> Judgement:
        rows.remove(rows[0])
        return Judgement(_ones(rows), {"extra": Estimate(1.0)})

    monkeypatch.setitem(SCORERS, "extra", returning(rules))
    with pytest.raises(AttributeError, match="'tuple' object has no attribute 'remove'"):
        score_rows(ROWS, [prediction("a")], "extra", **NAMES)


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Callable[[Scorer], Scorer]:
    """Brings a scorer as a plug-in does."""

    def bring(scorer: Scorer) -> Scorer:
        monkeypatch.setitem(SCORERS, "extra", scorer)
        monkeypatch.setitem(plugins._BROUGHT, id(scorer), (scorer, __name__))
        return scorer

    return bring


def wrong_letters(rows: Sequence[Prediction]) -> list[float]:
    """A value that is 0 for the answer, and 100 for a text that ends with none of its letters."""
    return [100.0 * (row.text.strip()[-1:] != row.answers[0][-1:]) for row in rows]


LENGTH = lower(lambda rows: [float(len(row.text)) for row in rows])
BOXED = lower(lambda rows: [100.0 * ("boxed" not in row.text) for row in rows])


@pytest.mark.parametrize(
    ("part", "given", "says"),
    [
        ("unreadable", lambda answer: False, "returned False; return a text or None"),
        ("unreadable", lambda answer: 1 / 0, "of 'right' failed: ZeroDivisionError: "),
        ("normalise", lambda answer: None, "returned None; return a text"),
    ],
)
def test_a_part_of_a_plug_in_s_scorer_that_fails_is_told_with_its_name(
    outside: Callable[[Scorer], Scorer], part: str, given: Any, says: str
) -> None:
    outside(replace(SAME, **{part: given}))
    with pytest.raises(UserError, match=f"^scorer 'extra': `{part}` {says}"):
        score_rows(ROWS, [prediction("a")], "extra", **NAMES)


@pytest.mark.parametrize("lost", ["empty", "missing", "failed"])
@pytest.mark.parametrize(("scorer", "gold"), [(LENGTH, 5), (SAME, 0)])
def test_a_plug_in_to_which_no_text_is_as_good_as_the_answer_is_refused(
    outside: Callable[[Scorer], Scorer], scorer: Scorer, gold: int, lost: str
) -> None:
    outside(scorer)
    rest = {"empty": [prediction("d", " ")], "failed": [prediction("d", reason="error")]}
    texts = [prediction(name, "") for name in "abc" if lost == "empty"] + rest.get(lost, [])
    count = len(texts) if lost == "empty" else 4
    with pytest.raises(UserError) as error:
        score_rows(ROWS, texts, "extra", **NAMES)
    assert str(error.value) == (
        f"scorer 'extra' gives empty texts the extra 0, and the accepted answers of the same"
        f" {count} rows {gold}, lower is better, so that rows without a text count as right; let"
        " it give an empty text its worst value, or correct higher_is_better"
    )


@pytest.mark.parametrize(
    ("scorer", "rows"),
    [
        (lower(wrong_letters), ROWS),
        (BOXED, ROWS),  # which reads no bare answer
        (LENGTH, [row("a", " "), row("b", "right", "")]),  # where no text is right
    ],
)
def test_a_plug_in_that_gives_empty_texts_its_worst_value_is_not_refused(
    outside: Callable[[Scorer], Scorer], scorer: Scorer, rows: list[PreparedRow]
) -> None:
    outside(scorer)
    assert score_rows(rows, [prediction("a", "")], "extra", **NAMES).empty == 1


def right_letters(scale: float, rows: Sequence[Prediction]) -> list[float]:
    """The share of the text's letters that the answer has."""
    return [scale * fmean([c in row.answers[0] for c in row.text] or [False]) for row in rows]


def upwards(scale: float) -> Scorer:
    scorer = lower(partial(right_letters, scale))
    return replace(scorer, metrics=(Metric("extra", "extra"),))


@pytest.mark.parametrize("texts", [["right", "rigxx"], ["right", "xx"]])
def test_shares_are_refused_because_a_margin_is_a_point_of_a_hundred(
    outside: Callable[[Scorer], Scorer], texts: list[str]
) -> None:
    given = [prediction(name, text) for name, text in zip("ab", texts, strict=True)]
    outside(upwards(1))
    with pytest.raises(UserError) as error:
        score_rows(ROWS, given, "extra", **NAMES)
    assert str(error.value) == (
        "scorer 'extra' gives accepted answers the extra 1, and empty texts 0; margins and verdicts"
        " are in points of a hundred: let it return 100 times that"
    )
    outside(upwards(100))
    assert score_rows(ROWS, given, "extra", **NAMES).main.value > 1


def test_a_scorer_of_the_wrong_direction_is_refused_before_rows_fail(
    outside: Callable[[Scorer], Scorer],
) -> None:
    outside(replace(lower(wrong_letters), metrics=(Metric("extra", "extra"),)))
    texts = [prediction(name, "right") for name in "abcd"]
    with pytest.raises(UserError, match=r"empty texts the extra 100, .* correct higher_is_better$"):
        score_rows(ROWS, texts, "extra", **NAMES)


def test_what_a_scorer_does_with_empty_texts_is_said_of_these(
    outside: Callable[[Scorer], Scorer],
) -> None:
    outside(lower(lambda rows: [100 / len(row.text) for row in rows]))
    texts = [prediction(name, "right") for name in "abcd"]
    with pytest.raises(UserError, match=r"ZeroDivisionError: .* \(empty texts, as failed"):
        score_rows(ROWS, texts, "extra", **NAMES)


def test_a_small_count_is_no_share(outside: Callable[[Scorer], Scorer]) -> None:
    rows = [row(name, "", "x") for name in "abcd"]
    outside(lower(lambda rows: [float(abs(len(row.text) - 1)) for row in rows]))
    score = score_rows(rows, [prediction("a", "xxxx"), prediction("b", "x")], "extra", **NAMES)
    assert score.main.value == 5 / 4


@pytest.mark.parametrize("error", [SystemExit(0), KeyError("oops")])
def test_a_plug_in_that_raises_or_exits_while_scoring_is_named(
    outside: Callable[[Scorer], Scorer], error: BaseException
) -> None:
    def rules(rows: Sequence[Prediction]) -> Judgement:
        raise error

    outside(returning(rules))
    with pytest.raises(UserError, match=f"'extra' failed: {type(error).__name__}: .* line "):
        score_rows(ROWS, [prediction("a")], "extra", **NAMES)


def test_the_page_has_a_scorer_that_is_better_lower_and_is_not_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugins, "_BROUGHT", {**plugins._BROUGHT})
    page = (Path(__file__).parents[2] / "docs/extending.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n((?:(?!```).)*EDIT_RATE.*?)```", page, re.DOTALL)
    try:
        exec(code, {"__name__": "__main__"})
        texts = [
            prediction("a", "right"),
            prediction("b", "fight"),
            prediction("c", reason="error"),
        ]
        score = score_rows(ROWS, texts, "edit_rate", **NAMES)
    finally:
        SCORERS.pop("edit_rate", None)
    assert (score.main.value, score.missing, score.failed) == (pytest.approx(220 / 4), 1, 1)


def test_texts_that_end_in_a_colon_are_counted() -> None:
    given = {"a": " The answer is: ", "b": "答えは：\u200b", "c": "**Answer:**", "d": "At 10:30"}
    texts = [prediction(name, text) for name, text in given.items()]
    assert score_rows(ROWS, texts, "squad", **NAMES).announced == 3
    texts[0] |= {"thoughts": len(given["a"])}
    assert score_rows(ROWS, texts, "squad", **NAMES).announced == 2
