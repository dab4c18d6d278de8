"""Runs tested against each other on the same rows: an ensemble and its baselines, or all pairs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

from adafuse.errors import UserError
from adafuse.metrics.paired import (
    bleu_counts,
    count_pairs,
    holm,
    mcnemar_exact,
    newcombe,
    paired_bootstrap,
    pooled_bleu,
)
from adafuse.metrics.score import ScoredRun
from adafuse.metrics.scorer import PUBLISHED
from adafuse.metrics.selection import SELECTIONS, is_oracle

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adafuse.metrics.paired import Counts, Floats

LEVEL = 0.05

OURS = frozenset({"adafuse"})
"""Methods that are not baselines, however their options are set."""

Runs = Mapping[str, tuple[str, Sequence[str]]]
"""Method and models of each run by its name, in the order of the configuration."""

Role = Literal["member", "best baseline", "other run"]


@dataclass(frozen=True, slots=True)
class Pairing:
    """A run and the run that it is compared with; `role` is what the other one is to it."""

    run: str
    against: str
    role: Role

    @property
    def hypothesis(self) -> frozenset[str]:
        """The two runs in no order: what is tested."""
        return frozenset((self.run, self.against))


def is_baseline(method: str) -> bool:
    """Say whether a method is a baseline: every one is, except those in `OURS` and selections."""
    return method not in OURS and method not in SELECTIONS


def pairings(runs: Runs, values: Mapping[str, float]) -> list[Pairing]:
    """Return the comparisons of one benchmark.

    Args:
        runs: all runs.
        values: scores of those that have one; a run without one takes no part.
    """
    present = {name: run for name, run in runs.items() if name in values}
    return [
        pairing
        for name, (method, models) in present.items()
        if len(models) > 1 and not is_oracle(method)
        for pairing in (*_members(present, name), *_best_baseline(present, name, values))
    ]


def all_pairs(values: Mapping[str, float]) -> list[Pairing]:
    """Return each run of `values` with every later one."""
    return [Pairing(run, other, "other run") for run, other in combinations(values, 2)]


def single_runs(runs: Runs, models: Sequence[str]) -> list[str]:
    """Return the runs of method single with one of `models`, in the order of the models."""
    single = [(name, run[1][0]) for name, run in runs.items() if run[0] == "single"]
    return [name for model in models for name, used in single if used == model]


def models_without_single(runs: Runs) -> dict[str, list[str]]:
    """Return, for each ensemble that has any, its models without a run of method `single`."""
    lacking = {
        name: [model for model in dict.fromkeys(models) if not single_runs(runs, [model])]
        for name, (_, models) in runs.items()
        if len(models) > 1
    }
    return {name: models for name, models in lacking.items() if models}


def _members(runs: Runs, name: str) -> list[Pairing]:
    models = list(dict.fromkeys(runs[name][1]))
    return [Pairing(name, other, "member") for other in single_runs(runs, models)]


def _best_baseline(runs: Runs, name: str, values: Mapping[str, float]) -> list[Pairing]:
    others = [other for other, run in runs.items() if other != name and is_baseline(run[0])]
    # Of equals the first in the configuration.
    best = max(others, key=values.__getitem__, default=None)
    return [] if best is None else [Pairing(name, best, "best baseline")]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs on the same rows.

    Scores and their difference (run minus other, with its 95 % interval) are in points of 0 to
    100. `p_holm` is adjusted for all tests of the benchmark under the protocol. `wins` counts the
    rows that only the run has right, `losses` those that only the other has; None for BLEU.
    """

    benchmark: str
    protocol: str
    run: str
    against: str
    role: Role
    metric: str
    n: int
    value: float
    other: float
    difference: float
    low: float
    high: float
    test: str
    p: float
    p_holm: float
    wins: int | None
    losses: int | None

    @property
    def significant(self) -> bool:
        """The adjusted p-value is below 0.05 and the interval of the difference leaves out 0."""
        return self.p_holm < LEVEL and not self.low <= 0 <= self.high


@dataclass(frozen=True, slots=True)
class _Test:
    difference: float
    low: float
    high: float
    test: str
    p: float
    wins: int | None = None
    losses: int | None = None


def compare_runs(runs: Runs, scores: Sequence[ScoredRun]) -> list[Comparison]:
    """Compare every ensemble with its members and the best baseline; each protocol on its own.

    Raises:
        UserError: runs of one benchmark were scored on different rows or by different metrics, or
            a score does not follow from its rows.
    """
    return _compare(partial(pairings, runs), scores)


def compare_all(scores: Sequence[ScoredRun]) -> list[Comparison]:
    """Compare every run with every later one on the same benchmark; each protocol on its own.

    Raises:
        UserError: as `compare_runs`.
    """
    return _compare(all_pairs, scores)


def _compare(
    choose: Callable[[Mapping[str, float]], Sequence[Pairing]], scores: Sequence[ScoredRun]
) -> list[Comparison]:
    groups: dict[tuple[str, str], list[ScoredRun]] = {}
    for scored in scores:
        groups.setdefault((scored.score.benchmark, scored.score.protocol), []).append(scored)
    return [each for group in groups.values() for each in _compare_group(choose, group)]


def _compare_group(
    choose: Callable[[Mapping[str, float]], Sequence[Pairing]], group: Sequence[ScoredRun]
) -> list[Comparison]:
    first = group[0]
    ids = [outcome.id for outcome in first.outcomes]
    aligned = {scored.score.run: scored.in_order(ids) for scored in group}
    for scored in aligned.values():
        _check_same_rows(first, scored)
    sign = 1 if first.metric.higher_is_better else -1
    pairs = choose({name: sign * scored.value for name, scored in aligned.items()})
    tests = _tested(aligned, pairs)
    return [
        _comparison(aligned[pair.run], aligned[pair.against], pair, test, p)
        for pair, test, p in zip(pairs, tests, _adjusted(pairs, tests), strict=True)
    ]


def _check_same_rows(first: ScoredRun, scored: ScoredRun) -> None:
    if first.score.primary != scored.score.primary:
        raise UserError(
            f"{scored.title} was scored by {scored.score.primary!r}, others by"
            f" {first.score.primary!r}; score all runs again"
        )
    references = ([outcome.answers for outcome in each.outcomes] for each in (first, scored))
    if scored.metric.tokenize is not None and next(references) != next(references):
        raise UserError(f"{scored.title} has other references than the rest; score all runs again")


def _tested(scores: Mapping[str, ScoredRun], pairs: Sequence[Pairing]) -> list[_Test]:
    metric = next(iter(scores.values())).metric
    if metric.binary:
        return [_accuracies(scores[pair.run], scores[pair.against]) for pair in pairs]
    names = dict.fromkeys(name for pair in pairs for name in pair.hypothesis)
    if metric.tokenize is not None:
        counts = {name: _counts(scores[name], metric.tokenize) for name in names}
        return [_bootstrapped(counts, pair, pooled_bleu) for pair in pairs]
    values = {name: _values(scores[name]) for name in names}
    return [_bootstrapped(values, pair, lambda column: float(column.mean())) for pair in pairs]


def _accuracies(scored: ScoredRun, other: ScoredRun) -> _Test:
    right = ([outcome.value == 1 for outcome in each.outcomes] for each in (scored, other))
    counts = count_pairs(next(right), next(right))
    low, high = newcombe(counts)
    return _Test(
        difference=100 * counts.difference,
        low=100 * low,
        high=100 * high,
        test="McNemar exact",
        p=mcnemar_exact(counts.wins, counts.losses),
        wins=counts.wins,
        losses=counts.losses,
    )


def _counts(scored: ScoredRun, tokenize: str) -> "Counts":
    texts = [outcome.text for outcome in scored.outcomes]
    references = [outcome.answers for outcome in scored.outcomes]
    drop = scored.score.protocol == PUBLISHED
    counts = bleu_counts(texts, references, tokenize, drop_empty=drop)
    scored.check_value(pooled_bleu(counts))
    return counts


def _values(scored: ScoredRun) -> "Floats":
    import numpy as np

    return np.array([outcome.value for outcome in scored.outcomes])


def _bootstrapped(
    rows: "Mapping[str, NDArray[Any]]", pair: Pairing, score: "Callable[[NDArray[Any]], float]"
) -> _Test:
    found = paired_bootstrap(rows[pair.run], rows[pair.against], score=score)
    return _Test(found.difference, found.low, found.high, "paired bootstrap", found.p)


def _adjusted(pairs: Sequence[Pairing], tests: Sequence[_Test]) -> list[float]:
    """Adjust for the tests that were made; a pair that occurs twice is one test."""
    tested = {pair.hypothesis: test.p for pair, test in zip(pairs, tests, strict=True)}
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    return [adjusted[pair.hypothesis] for pair in pairs]


def _comparison(
    scored: ScoredRun, other: ScoredRun, pair: Pairing, test: _Test, p_holm: float
) -> Comparison:
    return Comparison(
        benchmark=scored.score.benchmark,
        protocol=scored.score.protocol,
        run=pair.run,
        against=pair.against,
        role=pair.role,
        metric=scored.score.primary,
        n=len(scored.outcomes),
        value=scored.value,
        other=other.value,
        difference=test.difference,
        low=test.low,
        high=test.high,
        test=test.test,
        p=test.p,
        p_holm=p_holm,
        wins=test.wins,
        losses=test.losses,
    )
