"""A corpus metric of somebody else is primary from its registration alone."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
from sacrebleu.metrics.chrf import CHRF

from adafuse import plugins
from adafuse.benchmarks.shards import PreparedRow
from adafuse.errors import UserError
from adafuse.metrics.audit import audit
from adafuse.metrics.compare import compare_runs
from adafuse.metrics.intervals import Estimate
from adafuse.metrics.paired import paired_bootstrap, paired_randomization
from adafuse.metrics.registry import SCORERS, metric_named, register_scorer
from adafuse.metrics.score import ScoredRun, evaluate, read_scored, write_outcomes, write_score
from adafuse.metrics.scorer import (
    Corpus,
    Judgement,
    Metric,
    Outcome,
    Prediction,
    Scorer,
    corpus_rules,
)
from adafuse.metrics.translation import sacrebleu_corpus
from adafuse.report.contents import marks
from adafuse.report.main_table import build_table, to_markdown
from adafuse.report.tables import comparison_table


def word_errors(examples: Sequence[Prediction], protocol: str) -> Any:
    """Words that are wrong or lacking, and words of the first reference."""
    pairs = [(each.text.split(), each.answers[0].split()) for each in examples]
    return np.array(
        [
            (
                sum(a != b for a, b in zip(one, two, strict=False)) + abs(len(one) - len(two)),
                len(two),
            )
            for one, two in pairs
        ]
    )


def error_rate(rows: Any) -> float:
    errors, words = rows.sum(axis=0)
    return float(100 * errors / words)


CHRF_METRIC = Metric("chrf", "chrF", corpus=sacrebleu_corpus(CHRF))
WER_METRIC = Metric(
    "wer", "word error rate", higher_is_better=False, corpus=Corpus(word_errors, error_rate)
)
METRICS = {"chrf": CHRF_METRIC, "wer": WER_METRIC}

REFERENCES = [
    f"the dog number {n} sees a cat in house {n * 7}" + " today" * (n % 4) for n in range(60)
]
TEXTS = {
    "m": [text.replace("dog", "cow").replace("cat", "car") for text in REFERENCES],
    "l": [text.replace("sees a", "eats") if n % 2 else "no" for n, text in enumerate(REFERENCES)],
    "both": [text.replace("dog", "cow") if n % 3 else text for n, text in enumerate(REFERENCES)],
}
RUNS = {"m": ("single", ["m"]), "l": ("single", ["l"]), "both": ("adafuse", ["m", "l"])}


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    for name, metric in METRICS.items():
        register_scorer(Scorer(name, "of a corpus", (metric,), corpus_rules(metric)))
    yield
    for name in METRICS:
        del SCORERS[name]


def scored(run: str, scorer: str, protocol: str = "strict") -> ScoredRun:
    rows = [PreparedRow(f"r{n}", "?", "?", (text,)) for n, text in enumerate(REFERENCES)]
    texts = [{"id": f"r{n}", "text": text} for n, text in enumerate(TEXTS[run])]
    return evaluate(rows, texts, scorer, protocol, benchmark="mt", run=run)


def whole(run: str, scorer: str) -> float:
    if scorer == "chrf":
        return float(sacrebleu.corpus_chrf(TEXTS[run], [REFERENCES]).score)
    pairs = [
        Prediction("", text, (gold,)) for text, gold in zip(TEXTS[run], REFERENCES, strict=True)
    ]
    return error_rate(word_errors(pairs, "strict"))


@pytest.mark.parametrize("protocol", ["strict", "published"])
@pytest.mark.parametrize("scorer", METRICS)
def test_a_score_is_that_of_the_corpus_with_a_bootstrap_interval(scorer, protocol) -> None:
    found = scored("l", scorer, protocol)
    main = found.score.main
    assert main.value == pytest.approx(whole("l", scorer), abs=1e-9)
    assert main.low is not None and main.high is not None
    assert main.low < main.value < main.high
    mean = np.mean([outcome.value for outcome in found.outcomes])
    assert abs(main.value - mean) > 0.01  # it is not the mean of the sentences


def test_a_metric_that_the_bootstrap_does_not_fit_has_no_interval_and_no_mark() -> None:
    """The share of all gold words that occur in some text: a resample has fewer different texts."""

    def seen(examples: Sequence[Prediction], protocol: str) -> Any:
        words = [*dict.fromkeys(word for r in REFERENCES for word in r.split())]
        return np.array([[word in e.text.split() for word in words] for e in examples])

    def share(rows: Any) -> float:
        return float(100 * rows.any(axis=0).mean())

    metric = Metric("seen", "seen", corpus=Corpus(seen, share))
    register_scorer(Scorer("seen", "distinct words", (metric,), corpus_rules(metric)))
    try:
        runs = [scored(run, "seen") for run in RUNS]
        tests = compare_runs(RUNS, runs)
    finally:
        del SCORERS["seen"]
    assert all(run.score.main == Estimate(run.value) for run in runs)
    assert runs[1].value == 52.5  # where the resamples are near 42
    test = next(test for test in tests if test.against == "l")
    assert test.difference == 47.5
    assert (test.low, test.high, test.p_noninferior, test.detectable) == (None,) * 4
    assert test.verdict == "undecided"


def test_a_pooled_that_changes_its_rows_is_refused() -> None:
    """Else the rows of two runs would be no pairs any more."""

    def middle(rows: Any) -> float:
        rows.sort(axis=0)
        return float(rows[len(rows) // 2, 0])

    metric = Metric("middle", "median", corpus=Corpus(word_errors, middle))
    scorer = Scorer("middle", "median", (metric,), corpus_rules(metric))
    with pytest.raises(ValueError, match="read-only"):
        scorer.score("strict", [Prediction("a", "x", ("x",)), Prediction("b", "x", ("y",))])


def test_an_example_has_its_own_score() -> None:
    (first, *_) = scored("m", "chrf").outcomes
    assert first.value == pytest.approx(
        sacrebleu.sentence_chrf(TEXTS["m"][0], [REFERENCES[0]]).score
    )


@pytest.mark.parametrize("scorer", METRICS)
def test_runs_are_compared_by_resampling_the_corpus(scorer: str) -> None:
    tests = compare_runs(RUNS, [scored(run, scorer) for run in RUNS])
    assert {test.test for test in tests} == {"paired bootstrap"}
    test = next(test for test in tests if test.role == "member" and test.against == "l")
    assert test.difference == pytest.approx(whole("both", scorer) - whole("l", scorer))
    corpus = METRICS[scorer].corpus
    assert corpus is not None
    rows = [corpus.counts(scored(run, scorer).outcomes, "strict") for run in ("both", "l")]
    expected = paired_bootstrap(rows[0], rows[1], corpus.pooled)
    assert (test.low, test.high) == (expected.low, expected.high)
    swapped = paired_randomization(rows[0], rows[1], corpus.pooled)
    assert test.p == max(expected.p, swapped)
    assert (test.wins, test.losses) == (None, None)
    assert marks(tests) == {("strict", "mt", "both"): "*†"}


@pytest.mark.parametrize(("scorer", "metric"), [("chrf", "chrf"), ("wer", "wer")])
def test_the_tables_have_it_as_any_other(scorer: str, metric: str) -> None:
    runs = {run: scored(run, scorer) for run in RUNS}
    table = build_table(["mt"], RUNS, [run.score for run in runs.values()], None)
    assert [row.run for row in table.rows if row.cells[0].best] == ["both"]
    named = metric + metric_named(metric).note
    assert f"mt ({named}, n = 60)" in to_markdown(table)
    text = comparison_table(compare_runs(RUNS, list(runs.values())), {}).markdown
    assert f"({named}, paired bootstrap, n = 60)" in text


def test_what_is_stored_is_compared_alike_and_other_references_are_refused(tmp_path: Path) -> None:
    runs = []
    for run in RUNS:
        found = scored(run, "wer")
        path = tmp_path / f"{run}.json"
        write_score(path, found.score)
        write_outcomes(path.with_suffix(".outcomes.parquet"), found.outcomes, {})
        runs.append(read_scored(path))
    assert compare_runs(RUNS, runs) == compare_runs(RUNS, [scored(run, "wer") for run in RUNS])
    REFERENCES.append(REFERENCES.pop(0))
    try:
        with pytest.raises(UserError, match="other references than the rest"):
            compare_runs(RUNS, [*runs[:2], scored("both", "wer")])
    finally:
        REFERENCES.insert(0, REFERENCES.pop())


def test_few_rows_have_no_interval_and_nothing_is_dropped() -> None:
    rows = [PreparedRow("a", "?", "?", ("one two",)), PreparedRow("b", "?", "?", ("three",))]
    texts = [{"id": "a", "text": "one two"}, {"id": "b", "text": ""}]
    protocols = ("strict", "published")
    one, two = (evaluate(rows, texts, "wer", p, benchmark="mt", run="m") for p in protocols)
    assert one.score.main == two.score.main == Estimate(100 / 3)
    assert audit(one.outcomes, two.outcomes, "wer", benchmark="mt", run="m").accepted == ()


@pytest.mark.parametrize(
    ("corpus", "score", "says"),
    [
        (Corpus(word_errors, error_rate), 0.5, "reports the odd 0.5, but its `pooled` gives "),
        (
            Corpus(lambda rows, protocol: word_errors(rows[1:], protocol), error_rate), 50.0,
            r"cannot pool its odd: TypeError: `counts` of 60 examples has the shape \(59, 2\);"
            r" return a row of numbers for each, shape \[examples, n\] \(",
        ),
        (
            Corpus(lambda rows, protocol: word_errors(rows, protocol)[:, 0], error_rate), None,
            r"failed: TypeError: `counts` of 60 examples has the shape \(60,\); return a row of",
        ),
        (Corpus(word_errors, lambda rows: 1 / 0), 50.0, "cannot pool its odd: ZeroDivisionError"),
        (
            Corpus(word_errors, lambda rows: error_rate(rows) / 100), None,
            "gives accepted answers the odd 0, and empty texts 1; margins and verdicts are in",
        ),
    ],
)  # fmt: skip
def test_a_corpus_metric_of_a_plug_in_that_is_not_what_it_pools_is_refused(
    corpus: Corpus, score: float | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    metric = Metric("odd", "odd", higher_is_better=False, corpus=corpus)

    def rules(examples: Sequence[Prediction]) -> Judgement:
        if score is None:
            return corpus_rules(metric)(examples)
        outcomes = tuple(Outcome(e.id, e.text, e.answers, 1.0) for e in examples)
        return Judgement(outcomes, {"odd": Estimate(score)})

    scorer = Scorer("odd", "", (metric,), rules)
    monkeypatch.setitem(SCORERS, "odd", scorer)
    monkeypatch.setitem(plugins._BROUGHT, id(scorer), (scorer, __name__))
    with pytest.raises(UserError, match=f"^scorer 'odd' {says}"):
        scored("l", "odd")
