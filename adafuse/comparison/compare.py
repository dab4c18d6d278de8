"""Testing runs against each other: an ensemble and its baselines, or all of some runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from adafuse.comparison.bootstrap import bleu_counts, paired_bootstrap, pooled_bleu
from adafuse.comparison.holm import holm
from adafuse.comparison.mcnemar import count_pairs, mcnemar_exact, newcombe
from adafuse.comparison.outcomes import Scored, check_value
from adafuse.comparison.pairings import Pairing, Role, Runs, all_pairs, pairings
from adafuse.errors import UserError

if TYPE_CHECKING:
    from adafuse.comparison.bootstrap import Counts

LEVEL = 0.05

_Chooser = Callable[[Mapping[str, float]], Sequence[Pairing]]


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
class _Outcome:
    difference: float
    low: float
    high: float
    test: str
    p: float
    wins: int | None = None
    losses: int | None = None


def compare_runs(runs: Runs, scores: Sequence[Scored]) -> list[Comparison]:
    """Compare every ensemble with its members and the best baseline; each protocol on its own.

    Raises:
        UserError: runs of one benchmark were scored on different rows or by different metrics, or
            a score does not follow from its rows.
    """
    return _compare(partial(pairings, runs), scores)


def compare_all(scores: Sequence[Scored]) -> list[Comparison]:
    """Compare every run with every later one on the same benchmark; each protocol on its own.

    Raises:
        UserError: as `compare_runs`.
    """
    return _compare(all_pairs, scores)


def _compare(choose: _Chooser, scores: Sequence[Scored]) -> list[Comparison]:
    groups: dict[tuple[str, str], list[Scored]] = {}
    for scored in scores:
        groups.setdefault((scored.benchmark, scored.protocol), []).append(scored)
    return [each for group in groups.values() for each in _compare_group(choose, group)]


def _compare_group(choose: _Chooser, group: Sequence[Scored]) -> list[Comparison]:
    aligned = {scored.run: scored.in_order(group[0].ids) for scored in group}
    for scored in aligned.values():
        _check_same_task(aligned[group[0].run], scored)
    pairs = choose({name: scored.value for name, scored in aligned.items()})
    outcomes = _outcomes(aligned, pairs)
    adjusted = _adjusted(pairs, outcomes)
    return [
        _comparison(aligned[pair.run], aligned[pair.against], pair, outcome, p)
        for pair, outcome, p in zip(pairs, outcomes, adjusted, strict=True)
    ]


def _check_same_task(first: Scored, scored: Scored) -> None:
    if (first.metric, first.tokenize) != (scored.metric, scored.tokenize):
        raise UserError(
            f"{scored.title} was scored by {scored.metric!r}, others by {first.metric!r}; score"
            " all runs again"
        )
    if scored.tokenize is not None and first.references != scored.references:
        raise UserError(f"{scored.title} has other references than the rest; score all runs again")


def _outcomes(scores: Mapping[str, Scored], pairs: Sequence[Pairing]) -> list[_Outcome]:
    if next(iter(scores.values())).tokenize is None:
        return [_accuracies(scores[pair.run], scores[pair.against]) for pair in pairs]
    counts = {name: _counts(scores[name]) for pair in pairs for name in pair.hypothesis}
    return [_bleus(counts[pair.run], counts[pair.against]) for pair in pairs]


def _accuracies(scored: Scored, other: Scored) -> _Outcome:
    counts = count_pairs([v == 1 for v in scored.values], [v == 1 for v in other.values])
    low, high = newcombe(counts)
    return _Outcome(
        difference=100 * counts.difference,
        low=100 * low,
        high=100 * high,
        test="McNemar exact",
        p=mcnemar_exact(counts.wins, counts.losses),
        wins=counts.wins,
        losses=counts.losses,
    )


def _counts(scored: Scored) -> "Counts":
    assert scored.tokenize is not None
    drop = scored.protocol == "published"
    counts = bleu_counts(scored.hypotheses, scored.references, scored.tokenize, drop_empty=drop)
    check_value(scored, pooled_bleu(counts))
    return counts


def _bleus(counts: "Counts", other: "Counts") -> _Outcome:
    result = paired_bootstrap(counts, other)
    return _Outcome(result.difference, result.low, result.high, "paired bootstrap", result.p)


def _adjusted(pairs: Sequence[Pairing], outcomes: Sequence[_Outcome]) -> list[float]:
    """Adjust for the tests that were made; a pair that is named twice is one test."""
    tested = {pair.hypothesis: outcome.p for pair, outcome in zip(pairs, outcomes, strict=True)}
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    return [adjusted[pair.hypothesis] for pair in pairs]


def _comparison(
    scored: Scored, other: Scored, pair: Pairing, outcome: _Outcome, p_holm: float
) -> Comparison:
    return Comparison(
        benchmark=scored.benchmark,
        protocol=scored.protocol,
        run=pair.run,
        against=pair.against,
        role=pair.role,
        metric=scored.metric,
        n=len(scored.ids),
        value=scored.value,
        other=other.value,
        difference=outcome.difference,
        low=outcome.low,
        high=outcome.high,
        test=outcome.test,
        p=outcome.p,
        p_holm=p_holm,
        wins=outcome.wins,
        losses=outcome.losses,
    )
