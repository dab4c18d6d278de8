"""Certificates that a run is less than a margin below the best member of an ensemble.

Learn then Test (A. N. Angelopoulos, S. Bates, E. J. Candès, M. I. Jordan and L. Lei, arXiv
2110.01052): each candidate has the hypothesis "below the best member by the margin or more", and a
test of many hypotheses keeps the chance of rejecting any true one at `alpha` or less. Whichever
rejected candidate is then chosen, the chance of a wrong certificate is not larger. The best member
is not known, so that a candidate is tested against each: its p-value is the largest one (R. L.
Berger, Multiparameter hypothesis testing and acceptance sampling, Technometrics 24, 1982).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Literal

import numpy as np

from adafuse.errors import UserError
from adafuse.metrics.compare import (
    MARGIN,
    aligned,
    alike,
    bootstrapped,
    differing,
    in_points,
    margin_doubt,
    rows_of,
)
from adafuse.metrics.intervals import FEWEST_ROWS
from adafuse.metrics.noninferior import LEVEL, resampled, tail
from adafuse.metrics.paired import SEED, PerRow, count_pairs
from adafuse.metrics.power import certifying_accuracies, certifying_means
from adafuse.metrics.registry import metric_named
from adafuse.metrics.score import ScoredRun

Order = Literal["preference", "sequence", "half"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A run that could be chosen, and its test against every member.

    `against` is the member with the largest p-value (of equals the best one), and `difference` the
    run's score minus that member's, in points, on the rows that are tested on. `p` is None where
    nothing can be tested: too few rows differ for the bootstrap, or limits cut more answers of one
    of the two. `level` is what p must not exceed; None if the run is not tested. `rows_needed` says
    how many rows give a certificate in 80 of 100 cases if the true difference is the observed one;
    None if none do.
    """

    run: str
    against: str | None
    difference: float | None
    p: float | None
    level: float | None = None
    rows_needed: int | None = None

    @property
    def certified(self) -> bool:
        """Whether the run is shown to be less than the margin below the best member."""
        return self.p is not None and self.level is not None and self.p <= self.level


@dataclass(frozen=True, slots=True)
class Certificate:
    """The run that is chosen, and whether it is certified; if not, it is the member that leads.

    The tests are on `n` rows. With order `half`, as many other rows chose the one candidate that is
    tested. `metric` names what is compared, `margin` is in its points, and `best` is the member
    that leads, with its score.
    """

    chosen: str
    certified: bool
    order: Order
    n: int
    margin: float
    alpha: float
    metric: str
    members: tuple[str, ...]
    best: tuple[str, float]
    candidates: tuple[Candidate, ...]

    @property
    def exact(self) -> bool:
        """Whether the tests are exact; those of means and of BLEU are by bootstrap."""
        return metric_named(self.metric).binary

    @property
    def sentence(self) -> str:
        """What the certificate says, or how many rows one would take."""
        about = f"{self.n} rows, alpha {self.alpha:g}" + ", approximate" * (not self.exact)
        if self.certified:
            found = next(each for each in self.candidates if each.run == self.chosen)
            assert found.p is not None
            doubt = margin_doubt(self.margin, *self.best, metric_named(self.metric))
            return (
                f"{self.chosen}: certified, less than {in_points(self.margin)} below the best of"
                f" {', '.join(self.members)} ({about}, p {found.p:.4f} at level {found.level:.4f})"
                + (doubt and f", which says little: {doubt}")
            )
        said = f"{self.chosen}, the member that leads: not certified ({about}); "
        tested = [each for each in self.candidates if each.rows_needed is not None]
        if not any(each.p is not None for each in self.candidates):
            few = f"fewer than {FEWEST_ROWS} rows differ, so give more, or " * (not self.exact)
            unlike = "limits cut more answers of one run, or many go beyond max_new_tokens"
            return f"{said}nothing was tested: {few}{unlike}"
        if not tested:
            return said + "what was tested leaves no number of rows that would give a certificate"
        near = min(tested, key=lambda each: each.rows_needed or 0)
        return said + (
            f"{near.run} comes nearest, {near.difference:+.1f} points against {near.against}: if"
            f" this is the true difference, a certificate takes some {near.rows_needed:,} rows"
        )


@dataclass(frozen=True, slots=True)
class _Test:
    """A candidate against a member: `rows` returns how many rows give a p up to a level."""

    member: str
    difference: float
    p: float | None
    rows: Callable[[float], int | None]


def certify(
    candidates: Sequence[str],
    members: Sequence[str],
    scores: Sequence[ScoredRun],
    *,
    order: Order = "preference",
    alpha: float = LEVEL,
    margin: float = MARGIN,
) -> Certificate:
    """Choose among candidates by `scores` of runs on the same rows, which were not used before.

    Candidates may be members. None may have learned from these rows.

    - `preference`: all are tested (`step_down`); the first certified one is chosen.
    - `sequence`: candidates from the safest to the boldest are tested, up to the first that fails
      (fixed-sequence testing); the last one before it is chosen.
    - `half`: the best one on half of the rows, at random, is tested on the others.

    Raises:
        UserError: the scores are not of the same rows, or there are fewer than two members.
    """
    if len(members) < 2:
        raise UserError("only one member was given, so nothing can be certified; give two or more")
    known = {scored.score.run: aligned(scored, scores[0]) for scored in scores}
    rows = {name: rows_of(scored) for name, scored in known.items()}
    metric, n = scores[0].metric, scores[0].score.n
    if n < 2:
        raise UserError("there is only one row, so nothing can be certified; give many more")
    merit = {name: metric.merit(metric.pooled(each)) for name, each in rows.items()}
    ranked = sorted(members, key=merit.__getitem__, reverse=True)
    tested, used = list(candidates), np.arange(n)
    if order == "half":
        choosing, used = np.array_split(np.random.default_rng(SEED).permutation(n), 2)
        tested = [max(tested, key=lambda name: metric.merit(metric.pooled(rows[name][choosing])))]
    worst = {
        name: _worst(
            _test(known[name], known[other], rows[name][used], rows[other][used], margin)
            for other in ranked
            if other != name
        )
        for name in tested
    }
    p_values = {name: 1.0 if test.p is None else test.p for name, test in worst.items()}
    levels, passed = decide(order, p_values, members, alpha)
    return Certificate(
        chosen=passed or ranked[0],
        certified=passed is not None,
        order=order,
        n=len(used),
        margin=margin,
        alpha=alpha,
        metric=metric.name,
        members=tuple(members),
        best=(ranked[0], metric.pooled(rows[ranked[0]])),
        candidates=tuple(
            _candidate(name, worst.get(name), levels.get(name), n // len(used))
            for name in candidates
        ),
    )


def _worst(tests: Iterable[_Test]) -> _Test:
    """Return the test with the largest p-value; a test without one counts as larger."""
    return max(tests, key=lambda test: math.inf if test.p is None else test.p)


def _test(run: ScoredRun, other: ScoredRun, rows: PerRow, others: PerRow, margin: float) -> _Test:
    """Test "the run is below the other one by the margin or more"."""
    metric, member = run.metric, other.score.run
    sign = int(metric.merit(1))
    p: float | None
    if metric.binary:
        counts = count_pairs(*(rows, others)[::sign])
        difference, p = 100 * sign * counts.difference, tail(counts, -margin / 100)
        needed = partial(certifying_accuracies, counts, margin)
    else:
        estimate = bootstrapped(metric, rows, others)
        difference, drawn = estimate.value, sign * estimate.resampled
        if not len(drawn):
            return _Test(member, difference, None, lambda level: None)
        p, error = resampled(drawn, margin).p, float(drawn.std())
        n = (len(rows), differing(rows, others))
        needed = partial(certifying_means, sign * difference, error, *n, margin)
    return _Test(member, difference, p if alike(run.score, other.score) else None, needed)


def _candidate(name: str, test: _Test | None, level: float | None, parts: int) -> Candidate:
    if test is None or level is None:
        return Candidate(name, *((test.member, test.difference, test.p) if test else (None,) * 3))
    needed = None if test.p is None else test.rows(level)
    return Candidate(name, test.member, test.difference, test.p, level, needed and parts * needed)


def decide(
    order: Order, p_values: Mapping[str, float], members: Sequence[str], alpha: float
) -> tuple[dict[str, float | None], str | None]:
    """Return the level of each candidate that is tested, in their order, and the certified choice.

    None: no candidate is certified.
    """
    names, values = list(p_values), list(p_values.values())
    if order == "preference":
        whole = p_values.keys() >= set(members)
        found = step_down(values, [whole and name in members for name in names], alpha)
    else:
        found = in_sequence(values, alpha)
    levels = dict(zip(names, found, strict=True))
    passed = [
        name for name, level in levels.items() if level is not None and p_values[name] <= level
    ]
    last = order == "sequence"
    return levels, passed[-last] if passed else None


def step_down(
    p_values: Sequence[float], members: Sequence[bool], alpha: float
) -> list[float | None]:
    """Return the level of each p-value, so that any wrong rejection has a chance up to `alpha`.

    `members` marks the members, if all of them are tested, and otherwise nothing.

    The smallest p-value is compared with alpha over the number of hypotheses that can be true, then
    the next one, until one is larger (S. Holm, A simple sequentially rejective multiple test
    procedure, 1979). As the best member is not below itself, one hypothesis among those of all
    `members` is false (J. P. Shaffer, Modified sequentially rejective multiple test procedures,
    JASA 81, 1986); this counts as long as none of them is rejected.
    """
    levels = [0.0] * len(p_values)
    left = sorted(range(len(p_values)), key=p_values.__getitem__)
    some_false = any(members)
    while left:
        level = alpha / max(1, len(left) - some_false)
        for each in left:
            levels[each] = level
        if p_values[left[0]] > level:
            break
        some_false &= not members[left.pop(0)]
    return [*levels]


def in_sequence(p_values: Sequence[float], alpha: float) -> list[float | None]:
    """Return `alpha` for each p-value up to the first that is larger, and None after it."""
    passed = [*takewhile(lambda p: p <= alpha, p_values)]
    tested = min(len(passed) + 1, len(p_values))
    return [alpha] * tested + [None] * (len(p_values) - tested)
