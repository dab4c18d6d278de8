"""Co-failure: the rows that every member of an ensemble gets wrong, and what fusing makes of them.

J. L. Chen, When does combining language models help? A co-failure ceiling on routing, voting, and
mixture-of-agents across 67 frontier models, arXiv 2606.27288: with a share beta of such rows, no
method that outputs the answer of one member is right more often than 1 - beta.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from adafuse.methods.selections import is_oracle
from adafuse.metrics.compare import Runs, by_benchmark, models_without_single, single_runs
from adafuse.metrics.intervals import clopper_pearson
from adafuse.metrics.score import ScoredRun


@dataclass(frozen=True, slots=True)
class CoFailure:
    """An ensemble on a benchmark, beside its members decoding on their own.

    Of `n` rows, all members get `all_wrong` wrong and `all_right` right; the ensemble has
    `gained` of the former right and `lost` of the latter wrong. `beta` is the share of the former
    with its exact 95 % interval, in percent, and `bound` the score that no choice between the
    members' answers can pass. `best` is the score of the best member, `value` that of the ensemble.
    """

    benchmark: str
    protocol: str
    run: str
    n: int
    value: float
    best: float
    bound: float
    beta: float
    beta_low: float
    beta_high: float
    all_wrong: int
    gained: int
    all_right: int
    lost: int


def co_failure(members: Sequence[ScoredRun], fused: ScoredRun) -> CoFailure | None:
    """Return the co-failure of members of an ensemble; None unless each row is right or wrong."""
    metric, score = fused.metric, fused.score
    if not metric.binary:
        return None
    right = [
        {row.id: (row.value == 1) == metric.higher_is_better for row in run.outcomes}
        for run in (*members, fused)
    ]
    *own, ours = ([each[name] for name in right[-1]] for each in right)
    votes = list(zip(*own, strict=True))
    wrong = [got for got, row in zip(ours, votes, strict=True) if not any(row)]
    agreed = [got for got, row in zip(ours, votes, strict=True) if all(row)]
    beta = 100 * len(wrong) / score.n
    low, high = clopper_pearson(len(wrong), score.n)
    return CoFailure(
        benchmark=score.benchmark,
        protocol=score.protocol,
        run=score.run,
        n=score.n,
        value=fused.value,
        best=max((member.value for member in members), key=metric.merit),
        bound=100 - beta if metric.higher_is_better else beta,
        beta=beta,
        beta_low=100 * low,
        beta_high=100 * high,
        all_wrong=len(wrong),
        gained=sum(wrong),
        all_right=len(agreed),
        lost=len(agreed) - sum(agreed),
    )


def co_failures(runs: Runs, scores: Sequence[ScoredRun]) -> list[CoFailure]:
    """Return a co-failure per ensemble and benchmark, where each of its models has a single run."""
    lacking = models_without_single(runs)
    fused = {
        name: single_runs(runs, name)
        for name, (method, models, *_) in runs.items()
        if len(models) > 1 and not is_oracle(method) and name not in lacking
    }
    found = []
    for group in by_benchmark(scores):
        named = {scored.score.run: scored for scored in group}
        for run, members in fused.items():
            if run in named and all(name in named for name in members):
                found.append(co_failure([named[name] for name in members], named[run]))
    return [each for each in found if each is not None]
