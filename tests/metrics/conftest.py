"""Scores with their outcomes, as the scoring step writes them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from adafuse.metrics.intervals import Estimate
from adafuse.metrics.paired import PerRow
from adafuse.metrics.score import Score, ScoredRun, write_outcomes
from adafuse.metrics.scorer import PUBLISHED, STRICT, Outcome, Prediction
from adafuse.metrics.translation import bleu_corpus, pooled_bleu


def scored(
    run: str, outcomes: Sequence[Outcome], metric: str, value: float, **changes: Any
) -> ScoredRun:
    """A score over some outcomes; `changes` go into the score."""
    given: dict[str, Any] = {
        "benchmark": "qa", "run": run, "protocol": "strict", "n": len(outcomes), "excluded": 0,
        "missing": 0, "empty": 0, "failed": 0, "primary": metric, "details": {},
        "metrics": {metric: Estimate(value, 0.0, 100.0), "other": Estimate(1.0, 0.0, 2.0)},
    }  # fmt: skip
    return ScoredRun(Score(**{**given, **changes}), tuple(outcomes))


def accuracy(
    run: str,
    values: Sequence[float],
    ids: Sequence[str] | None = None,
    metric: str = "exact_match",
    **changes: Any,
) -> ScoredRun:
    """A score of 1s and 0s."""
    names = ids or [f"r{number}" for number in range(len(values))]
    outcomes = [Outcome(name, "x", ("x",), each) for name, each in zip(names, values, strict=True)]
    return scored(run, outcomes, metric, 100 * sum(values) / len(values), **changes)


def translation(
    run: str,
    texts: Sequence[str],
    references: Sequence[str],
    value: float | None = None,
    metric: str = "bleu_13a",
    **changes: Any,
) -> ScoredRun:
    """A BLEU score."""
    drop = changes.get("protocol") == "published"
    found = pooled_bleu(counts(texts, [[text] for text in references], drop_empty=drop))
    pairs = enumerate(zip(texts, references, strict=True))
    outcomes = [Outcome(f"r{at}", text, (gold,), 0.0) for at, (text, gold) in pairs]
    value = found if value is None else value
    return scored(run, outcomes, metric, value, **{"benchmark": "mt", **changes})


def counts(
    texts: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenize: str = "13a",
    *,
    drop_empty: bool = False,
) -> PerRow:
    """What BLEU is made of."""
    pairs = [Prediction("", *pair) for pair in zip(texts, map(tuple, references), strict=True)]
    return bleu_corpus(tokenize).counts(pairs, PUBLISHED if drop_empty else STRICT)


def values(found: ScoredRun) -> list[float]:
    """The value of each row."""
    return [outcome.value for outcome in found.outcomes]


@pytest.fixture
def store(tmp_path: Path) -> Callable[..., Path]:
    """Write a score and its outcomes; `changes` go into the JSON."""

    def write(found: ScoredRun, **changes: Any) -> Path:
        folder = tmp_path / "scores" / found.score.protocol / found.score.benchmark
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{found.score.run}.json"
        path.write_text(json.dumps(asdict(found.score) | changes))
        write_outcomes(path.with_suffix(".outcomes.parquet"), found.outcomes, {})
        return path

    return write
