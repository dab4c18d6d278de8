"""Memory that runs out while examples are decoded."""

import gc
import logging
import time
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch

from adafuse.engine.program import Evaluator, Program, Request, Starter
from adafuse.errors import UserError


class TooManyRowsError(UserError):
    """So many examples at a time do not fit; fewer may."""


def out_of_memory(error: BaseException) -> bool:
    """Say whether memory ran out; what the CPU's allocator raises has no class of its own."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


@contextmanager
def memory_told(rows: int) -> Iterator[None]:
    """Turn running out of memory into a sentence that says what to change.

    Args:
        rows: how many examples are decoded at a time.

    Raises:
        TooManyRowsError: memory ran out.
    """
    try:
        yield
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        raise TooManyRowsError(_too_much(rows, str(error))) from error


def release() -> None:
    """Give back what nothing refers to any more, on the devices as well."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _too_much(rows: int, error: str) -> str:
    reason = " ".join(error.split("\n")[0].split())[:120]
    return (
        f"{rows} examples at a time are too many for the memory ({reason}); lower batch_size, set"
        " it to auto, or give the models other or more devices, or a smaller dtype"
    )


T = TypeVar("T")
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failure:
    """An example that raised: a sentence and where it came from."""

    error: str
    traceback: str


@dataclass(slots=True)
class _Live(Generic[T]):
    index: int
    program: Program[T]
    started: float
    waiting: Sequence[Request] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What example `index` came to, and the seconds from its admission to its end."""

    index: int
    value: T | Failure
    seconds: float


class Scheduler(Generic[T]):
    """Keeps up to `batch_size` examples alive; a finished one is replaced from the queue.

    Examples need not be in step: in each turn every device runs the engine that most examples wait
    for, with whatever nodes they ask for, so that forwards are few and full. All devices are
    started before one is waited for, so that they overlap.
    """

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._live: list[_Live[T]] = []

    def run(
        self, jobs: Iterator[tuple[int, Callable[[], Program[T]]]]
    ) -> Iterator[Outcome[T] | None]:
        """Run all jobs, yielding outcomes as examples end, in any order, and None before each turn.

        Who follows an example while it is decoded looks at it then.
        """
        while True:
            yield from self._refill(jobs)
            if not self._live:
                return
            yield None
            done = self._evaluate()
            for live in list(self._live):
                live.waiting = [each for each in live.waiting if each.engine not in done]
                if not live.waiting:
                    yield from self._advance(live)

    def _refill(self, jobs: Iterator[tuple[int, Callable[[], Program[T]]]]) -> Iterator[Outcome[T]]:
        while len(self._live) < self._batch_size:
            job = next(jobs, None)
            if job is None:
                return
            live = _Live(job[0], job[1](), time.perf_counter())
            self._live.append(live)
            yield from self._advance(live)

    def _evaluate(self) -> set[Evaluator]:
        """Fill in what some engines are asked for; return these engines."""
        wanted: dict[Evaluator, list[Request]] = {}
        waiting: Counter[Evaluator] = Counter()
        for live in self._live:
            waiting.update(dict.fromkeys(request.engine for request in live.waiting).keys())
            for request in live.waiting:
                wanted.setdefault(request.engine, []).append(request)
        chosen = _one_per_device(waiting)
        started = [(each, _start(each, wanted[each])) for each in chosen]
        for engine, finish in started:
            if finish is None:
                engine.evaluate(wanted[engine])
            else:
                finish()
        return set(chosen)

    def _advance(self, live: _Live[T]) -> Iterator[Outcome[T]]:
        """Resume one example up to its next request; yield its outcome if there is none."""
        value: T | Failure
        try:
            live.waiting = next(live.program)
            return
        except StopIteration as done:
            value = done.value
        except Exception as error:  # the border of an example: the others go on
            if out_of_memory(error):  # in which the others have a part
                raise
            logger.warning("example %d failed: %s", live.index, _sentence(error))
            value = Failure(_sentence(error), traceback.format_exc())
        self._live.remove(live)
        yield Outcome(live.index, value, time.perf_counter() - live.started)


def _one_per_device(waiting: "Counter[Evaluator]") -> list[Evaluator]:
    """Return the engine of each device that most examples wait for, ties to the earlier one.

    Evaluators without a device of theirs are all chosen.
    """
    chosen: dict[Hashable, Evaluator] = {}
    for engine, examples in waiting.items():
        place = engine.device if isinstance(engine, Starter) else id(engine)
        if examples > waiting[chosen.setdefault(place, engine)]:
            chosen[place] = engine
    return list(chosen.values())


def _start(engine: Evaluator, requests: list[Request]) -> Callable[[], None] | None:
    return engine.start(requests) if isinstance(engine, Starter) else None


def _sentence(error: Exception) -> str:
    return str(error) or type(error).__name__
