"""Runs tested against each other on the same rows: an ensemble and its baselines, or all pairs."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, Literal, NamedTuple

from adafuse.errors import UserError
from adafuse.methods.selections import SELECTIONS, is_oracle
from adafuse.metrics import noninferior, power
from adafuse.metrics.intervals import FEWEST_ROWS, fits
from adafuse.metrics.noninferior import LEVEL
from adafuse.metrics.paired import (
    Difference,
    PairedCounts,
    PerRow,
    holm,
    paired_accuracies,
    paired_bootstrap,
    paired_randomization,
)
from adafuse.metrics.registry import metric_named
from adafuse.metrics.score import MANY_CUT, Score, ScoredRun
from adafuse.metrics.scorer import Metric

MARGIN = 1.0
"""In points: a run that is worse by less counts as not inferior, if nothing else is configured."""


class RunSpec(NamedTuple):
    """What of a run says with which others it is compared."""

    method: str
    models: Sequence[str]
    max_rounds: int | None = None


Runs = Mapping[str, tuple[str, Sequence[str]] | tuple[str, Sequence[str], int | None]]
"""The `RunSpec` of each run by its name, in the order of the configuration."""

Role = Literal["member", "member, others missing", "best baseline", "other run"]
"""Only where all members are there, a run can be said to be better than each of its models."""


class Pairing(NamedTuple):
    """A run and the run that it is compared with; `role` is what the other one is to it."""

    run: str
    against: str
    role: Role


def is_baseline(method: str) -> bool:
    """Every decoded run is one; a choice between runs would be compared with what it chose."""
    return method not in SELECTIONS


def pairings(runs: Runs, merits: Mapping[str, float], study: Collection[str] = ()) -> list[Pairing]:
    """Return the comparisons of the ensembles of one benchmark, among the runs with a score.

    Every other run is a baseline, but those under `study` are none of each other. The best one has
    the highest of `merits`.
    """
    present = {name: RunSpec(*run) for name, run in runs.items() if name in merits}
    baselines = [name for name, run in present.items() if is_baseline(run.method)]
    lacking = models_without_single(present)
    pairs = []
    for name, run in present.items():
        if len(run.models) > 1 and not is_oracle(run.method):
            role: Role = "member, others missing" if name in lacking else "member"
            pairs += [Pairing(name, single, role) for single in single_runs(present, name)]
            excluded = {name, *study} if name in study else {name}
            others = [other for other in baselines if other not in excluded]
            if others:  # of equals the first in the configuration
                pairs.append(Pairing(name, max(others, key=merits.__getitem__), "best baseline"))
    return pairs


def all_pairs(values: Mapping[str, float]) -> list[Pairing]:
    """Return each run of `values` with every later one."""
    return [Pairing(run, other, "other run") for run, other in combinations(values, 2)]


def single_runs(runs: Runs, ensemble: str) -> list[str]:
    """Return the members of an ensemble, in the order of its models."""
    return [name for names in members(runs, ensemble).values() for name in names]


def models_without_single(runs: Runs) -> dict[str, list[str]]:
    """Return, for each ensemble that has any, its models without a member."""
    found = {name: members(runs, name) for name in runs if len(RunSpec(*runs[name]).models) > 1}
    lacking = {
        name: [model for model, names in by_model.items() if not names]
        for name, by_model in found.items()
    }
    return {name: models for name, models in lacking.items() if models}


def members(runs: Runs, ensemble: str) -> dict[str, list[str]]:
    """Return by model the runs of method single that may have as many rounds as an ensemble.

    If there are none, they are those without `max_rounds`. One that is cut elsewhere is none.
    """
    models, rounds = RunSpec(*runs[ensemble])[1:]
    single = [(name, RunSpec(*run)) for name, run in runs.items() if run[0] == "single"]

    def of(model: str, most: int | None) -> list[str]:
        return [name for name, run in single if (run.models[0], run.max_rounds) == (model, most)]

    return {model: of(model, rounds) or of(model, None) for model in dict.fromkeys(models)}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs on the same rows.

    Scores and their difference (run minus other, with its 95 % interval, None with few rows) are in
    points of 0 to 100. `p_holm` is adjusted for all tests of the benchmark under the protocol.
    `wins` counts the rows that only the run has right, `losses` those that only the other has; None
    unless the metric is binary. `cut` and `other_cut` are the shares of answers that a limit cut,
    in percent; None if that is not known. `beyond` is the larger share of those that do not fit
    into max_new_tokens. `failed` and `other_failed` rows could not be decoded.

    `p_noninferior` is the one-sided p-value of "worse by `margin` or more", and `worst` the end of
    the one-sided 95 % interval of the difference on the worse side. `detectable` is the difference
    that the test finds in 80 % of repetitions (p below 0.05 before Holm's adjustment), None if
    there is none, and `rows_needed` as many rows as one of 2 points needs. All are None where too
    few rows differ, or the bootstrap does not fit the metric.
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
    low: float | None
    high: float | None
    test: str
    p: float
    p_holm: float
    wins: int | None
    losses: int | None
    higher_is_better: bool = True
    cut: float | None = None
    other_cut: float | None = None
    beyond: float = 0.0
    failed: int = 0
    other_failed: int = 0
    margin: float = MARGIN
    p_noninferior: float | None = None
    worst: float | None = None
    detectable: float | None = None
    rows_needed: int | None = None

    @property
    def hypothesis(self) -> frozenset[str]:
        """The two runs in no order: what is tested."""
        return frozenset((self.run, self.against))

    @property
    def significant(self) -> bool:
        """The adjusted p-value is below 0.05, the interval without 0, and the runs are alike."""
        if self.low is None or self.high is None or not self.alike:
            return False
        return self.p_holm < LEVEL and not self.low <= 0 <= self.high

    @property
    def noninferior(self) -> bool:
        """The run is shown to be worse by less than the margin, and the runs are alike."""
        return self.p_noninferior is not None and self.p_noninferior <= LEVEL and self.alike

    @property
    def allowed(self) -> str:
        """The margin in words: "1 point"."""
        return in_points(self.margin)

    @property
    def doubt(self) -> str:
        """What makes it say little that the run is worse by less than the margin; "" if nothing."""
        return margin_doubt(self.margin, self.against, self.other, metric_named(self.metric))

    @property
    def verdict(self) -> str:
        """What is shown, in a few words; "undecided" is not "as good"."""
        small = f"less than {self.allowed} worse" * self.noninferior
        if not self.significant:
            return small or "undecided"
        return "better" if self.gain > 0 else ", ".join(filter(None, ("worse", small)))

    @property
    def alike(self) -> bool:
        """About as many answers of both were cut, or failed, and few go beyond the budget."""
        failed = 100 * (self.failed - self.other_failed) / self.n if self.wins is None else 0.0
        return _alike(self.cut, self.other_cut, self.beyond, failed)

    @property
    def gain(self) -> float:
        """The difference, positive where the run is better."""
        return metric_named(self.metric).merit(self.difference)

    def undecided(self, texts: str) -> str:
        """Say what is shown of `texts`, as a sentence calls the run's, where no run is better."""
        said = ["These rows do not show which is better."]
        if self.noninferior:
            little = self.doubt and f", which says little: {self.doubt}"
            said.append(f"They show that {texts} are less than {self.allowed} worse{little}.")
        elif self.p_noninferior is not None:
            said.append(f"Nor do they show that {texts} are as good: that takes more rows.")
        if self.rows_needed is not None:
            size = f"{self.detectable:.1f} points" if self.detectable else "none"
            said.append(
                f"The smallest difference that {self.n} such rows show in 80 of 100 cases: {size};"
                f" one of {power.TARGET:g} points takes {self.rows_needed:,} rows."
            )
        return " ".join(said)


def in_points(margin: float) -> str:
    """Return a margin in words: "1 point"."""
    return f"{margin:g} point" + "s" * (margin != 1)


def margin_doubt(margin: float, best: str, score: float, metric: Metric) -> str:
    """Say so where a margin is more than half of the score of `best`; "" where it is not.

    A run within such a margin may have lost most of what the best member gets right. Half is the
    usual limit in clinical trials (FDA, Non-inferiority clinical trials to establish effectiveness,
    2016). Of scores below 0, or where lower is better, it says nothing.
    """
    if not metric.higher_is_better or not 0 <= score < 2 * margin:
        return ""
    return f"{in_points(margin)} is more than half of the {score:.1f} that {best} scores"


def _alike(cut: float | None, other_cut: float | None, beyond: float, failed: float) -> bool:
    apart = max(abs((cut or 0.0) - (other_cut or 0.0)), beyond, abs(failed))
    return round(apart, 6) <= MANY_CUT  # not 5.000000000000004


def alike(one: Score, other: Score) -> bool:
    """Whether about as many answers of both runs were cut, or failed, as of a `Comparison`."""
    beyond, failed = max(one.beyond_share, other.beyond_share), one.lost_share - other.lost_share
    return _alike(one.cut_share, other.cut_share, beyond, failed)


def compare_runs(
    runs: Runs,
    scores: Sequence[ScoredRun],
    study: Collection[str] = (),
    margin: float = MARGIN,
) -> list[Comparison]:
    """Compare every ensemble with its members and the best baseline; each protocol on its own.

    Runs under `study` are no baselines of each other. `margin` is that of non-inferiority.
    """
    return _compare(partial(pairings, runs, study=study), scores, margin)


def compare_all(scores: Sequence[ScoredRun], margin: float = MARGIN) -> list[Comparison]:
    """Compare every run with every later one on the same benchmark; each protocol on its own."""
    return _compare(all_pairs, scores, margin)


Choose = Callable[[Mapping[str, float]], list[Pairing]]


def _compare(choose: Choose, scores: Sequence[ScoredRun], margin: float) -> list[Comparison]:
    groups = by_benchmark(scores)
    return [comparison for group in groups for comparison in _compare_group(choose, group, margin)]


def by_benchmark(scores: Sequence[ScoredRun]) -> list[list[ScoredRun]]:
    """Return the scores of each benchmark and protocol."""
    groups: dict[tuple[str, str], list[ScoredRun]] = {}
    for scored in scores:
        groups.setdefault((scored.score.benchmark, scored.score.protocol), []).append(scored)
    return list(groups.values())


def _compare_group(choose: Choose, group: Sequence[ScoredRun], margin: float) -> list[Comparison]:
    first = group[0]
    runs = {scored.score.run: aligned(scored, first) for scored in group}
    merits = {
        name: -math.inf if run.score.lost_share > MANY_CUT else first.metric.merit(run.value)
        for name, run in runs.items()
    }
    pairs = choose(merits)
    compared = dict.fromkeys(name for pair in pairs for name in (pair.run, pair.against))
    rows = {name: rows_of(runs[name]) for name in compared}
    comparisons = [
        _comparison(runs[run], rows[run], runs[against], rows[against], role, margin)
        for run, against, role in pairs
    ]
    # A pair that occurs twice is one test.
    tests = {comparison.hypothesis: comparison.p for comparison in comparisons}
    adjusted = dict(zip(tests, holm(list(tests.values())), strict=True))
    return [replace(c, p_holm=adjusted[c.hypothesis]) for c in comparisons]


def aligned(scored: ScoredRun, first: ScoredRun) -> ScoredRun:
    """Return a score with its rows in the order of another one's."""
    if first.score.primary != scored.score.primary:
        raise UserError(
            f"{scored.title} was scored by {scored.score.primary!r}, others by"
            f" {first.score.primary!r}; score all runs again"
        )
    by_id = {outcome.id: outcome for outcome in scored.outcomes}
    if unpaired := by_id.keys() ^ {outcome.id for outcome in first.outcomes}:
        raise UserError(
            f"{scored.title} was not scored on the same rows as the others: row"
            f" {min(unpaired)!r} is on one side only; score all runs again"
        )
    outcomes = tuple(by_id[outcome.id] for outcome in first.outcomes)
    references = [[outcome.answers for outcome in run] for run in (outcomes, first.outcomes)]
    if scored.metric.corpus is not None and references[0] != references[1]:
        raise UserError(f"{scored.title} has other references than the rest; score all runs again")
    return replace(scored, outcomes=outcomes)


def rows_of(scored: ScoredRun) -> PerRow:
    """Return what the metric makes the score of, row by row."""
    rows = scored.metric.rows(scored.outcomes, scored.score.protocol)
    pooled = scored.metric.pooled(rows)
    if abs(pooled - scored.value) > 1e-6 or len(rows) != scored.score.n:
        raise UserError(
            f"{scored.title}: the score is {scored.value:.6f} (n = {scored.score.n}), but its"
            f" outcomes give {pooled:.6f} (n = {len(rows)}); score the run again"
        )
    return rows


def _comparison(
    scored: ScoredRun,
    rows: PerRow,
    other: ScoredRun,
    other_rows: PerRow,
    role: Role,
    margin: float,
) -> Comparison:
    if scored.metric.binary:
        test, estimate = "McNemar exact", paired_accuracies(rows, other_rows)
    else:
        test, estimate = "paired bootstrap", _resampled(scored.metric, rows, other_rows)
    shown = _evidence(scored.metric, estimate, rows, other_rows, margin)
    return Comparison(
        benchmark=scored.score.benchmark,
        protocol=scored.score.protocol,
        run=scored.score.run,
        against=other.score.run,
        role=role,
        metric=scored.score.primary,
        n=len(rows),
        value=scored.value,
        other=other.value,
        difference=estimate.value,
        low=estimate.low,
        high=estimate.high,
        test=test,
        p=estimate.p,
        p_holm=estimate.p,
        wins=estimate.wins,
        losses=estimate.losses,
        higher_is_better=scored.metric.higher_is_better,
        cut=scored.score.cut_share,
        other_cut=other.score.cut_share,
        beyond=max(scored.score.beyond_share, other.score.beyond_share),
        failed=scored.score.failed,
        other_failed=other.score.failed,
        margin=margin,
        **shown,
    )


def _evidence(
    metric: Metric, estimate: Difference, rows: PerRow, others: PerRow, margin: float
) -> dict[str, Any]:
    """Return the test of non-inferiority and the power of a comparison, by field."""
    sign, n = int(metric.merit(1)), len(rows)
    if estimate.wins is not None and estimate.losses is not None:
        better, worse = (estimate.wins, estimate.losses)[::sign]
        counts = PairedCounts(0, better, worse, n - better - worse)
        test, found = noninferior.exact(counts, margin), power.of_accuracies(counts)
    elif len(estimate.resampled):
        differences = estimate.resampled
        test = noninferior.resampled(sign * differences, margin)
        found = power.of_means(float(differences.std()), n, differing(rows, others))
    else:
        return {}
    return {
        "p_noninferior": test.p,
        "worst": sign * test.worst,
        "detectable": found and found.detectable,
        "rows_needed": found and found.rows,
    }


def _resampled(metric: Metric, rows: PerRow, others: PerRow) -> Difference:
    """Return the bootstrap's difference with the larger p-value of it and of randomization."""
    estimate = bootstrapped(metric, rows, others)
    return replace(estimate, p=max(estimate.p, paired_randomization(rows, others, metric.pooled)))


def bootstrapped(metric: Metric, rows: PerRow, others: PerRow) -> Difference:
    """Return the bootstrap's difference, without what so few rows, or such a metric, cannot have.

    Of few rows that differ, its resamples say nothing of how much the others might.
    """
    estimate = paired_bootstrap(rows, others, metric.pooled)
    fitting = fits(estimate.resampled, estimate.value)
    if len(rows) < FEWEST_ROWS or not fitting:
        estimate = replace(estimate, low=None, high=None)
    if differing(rows, others) < FEWEST_ROWS or not fitting:
        estimate = replace(estimate, resampled=estimate.resampled[:0])
    return estimate


def differing(rows: PerRow, others: PerRow) -> int:
    """Return on how many rows two runs differ in what makes the score."""
    return int((rows != others).reshape(len(rows), -1).any(axis=1).sum())
