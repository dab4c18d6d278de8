"""Timing cases side by side: repeats take turns, so that a drift of the machine hits all alike."""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from adafuse.bench.cases import Case, Outcome


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one case over all repeats: median and quartiles."""

    case: str
    workload: str
    prompts: int
    batch_size: int
    seconds: float
    low: float
    high: float
    outcome: Outcome

    @property
    def tokens_per_second(self) -> float:
        """Ids per second that the first model wrote."""
        return self.outcome.tokens[0] / self.seconds


Progress = Callable[[str, float | None], None]
"""Is told what comes next, and the tokens per second of what was timed last."""


def measure(
    cases: Sequence[Case], repeats: int, progress: Progress = lambda name, speed: None
) -> list[Timing]:
    """Run each case once unmeasured, then all of them in turn, `repeats` times."""
    speed: float | None = None
    for case in cases:
        progress(f"warming up {case.name}", speed)
        case.run()
    seconds: dict[str, list[float]] = {case.name: [] for case in cases}
    outcomes: dict[str, Outcome] = {}
    for turn in range(repeats):
        for case in cases:
            progress(f"{turn + 1} of {repeats}: {case.name}", speed)
            gc.collect()
            taken, outcomes[case.name] = _timed(case)
            seconds[case.name].append(taken)
            speed = outcomes[case.name].tokens[0] / taken
    return [_timing(case, seconds[case.name], outcomes[case.name]) for case in cases]


def _timed(case: Case) -> tuple[float, Outcome]:
    start = time.perf_counter()
    outcome = case.run()  # its last result was read from the device
    return time.perf_counter() - start, outcome


def _timing(case: Case, seconds: list[float], outcome: Outcome) -> Timing:
    low, high = seconds[0], seconds[0]
    if len(seconds) > 1:
        low, _, high = quantiles(seconds, n=4, method="inclusive")
    work = case.workload
    return Timing(
        case.name,
        work.name,
        len(work.prompts),
        case.batch_size,
        median(seconds),
        low,
        high,
        outcome,
    )
