"""Advances many examples at once: one forward per model over all rows that asked for something."""

import gc
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import torch

from adafuse.engine.node import Engine, Evaluator, Program, Request, Starter, TokenSequence
from adafuse.errors import UserError
from adafuse.records import Prompt

ExampleT = TypeVar("ExampleT")


@dataclass(frozen=True, slots=True)
class Advanced(Generic[ExampleT]):
    """An event: `example` went on, and waits for its next request."""

    example: ExampleT


@dataclass(frozen=True, slots=True)
class Finished(Generic[ExampleT]):
    """An event: `example` ended `seconds` after its admission.

    Where it raised, `error` is a sentence and `traceback` where it came from.
    """

    example: ExampleT
    seconds: float
    error: str | None = None
    traceback: str | None = None


Event = Advanced[ExampleT] | Finished[ExampleT]


@dataclass(slots=True)
class _Live(Generic[ExampleT]):
    example: ExampleT
    program: Program[None]
    started: float
    waiting: Sequence[Request] = field(default_factory=list)


class Scheduler(Generic[ExampleT]):
    """Keeps up to `batch_size` examples alive; a finished one is replaced from the source.

    Examples need not be in step: in each turn every device runs the engine that most examples wait
    for, with whatever nodes they ask for, so that forwards are few and full. All devices are
    started before one is waited for, so that they overlap.
    """

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._live: list[_Live[ExampleT]] = []
        self._events: deque[Event[ExampleT]] = deque()

    def run(self, source: Iterator[tuple[ExampleT, Program[None]]]) -> Iterator[Event[ExampleT]]:
        """Run the programs of all examples, and yield what happens to them, in any order.

        The source is asked for more whenever there is room; it may grow until it is exhausted.

        Raises:
            TooManyRowsError: memory ran out.
        """
        with memory_errors_named(self._batch_size):
            while self._admit(source):
                yield from self._happened()
                done = self._evaluate()
                for live in list(self._live):
                    live.waiting = [each for each in live.waiting if each.engine not in done]
                    if not live.waiting:
                        self._advance(live)
                yield from self._happened()
            yield from self._happened()

    def _happened(self) -> Iterator[Event[ExampleT]]:
        while self._events:
            yield self._events.popleft()

    def _admit(self, source: Iterator[tuple[ExampleT, Program[None]]]) -> bool:
        """Fill up from the source; return whether there is anything to do."""
        while len(self._live) < self._batch_size:
            job = next(source, None)
            if job is None:
                break
            live = _Live(*job, time.perf_counter())
            self._live.append(live)
            self._advance(live)
        return bool(self._live)

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

    def _advance(self, live: _Live[ExampleT]) -> None:
        """Resume one example up to its next request or its end."""
        error: str | None = None
        trace: str | None = None
        try:
            live.waiting = next(live.program)
            self._events.append(Advanced(live.example))
            return
        except StopIteration:
            pass
        except Exception as raised:  # the border of an example: the others go on
            if out_of_memory(raised):  # in which the others have a part
                raise
            error, trace = str(raised) or type(raised).__name__, traceback.format_exc()
        self._live.remove(live)
        seconds = time.perf_counter() - live.started
        self._events.append(Finished(live.example, seconds, error, trace))


class Prompted(Protocol):
    """What a program runs on: prompt number `index`, open in every model."""

    index: int
    prompt: Prompt
    sequences: list[TokenSequence]


PromptedT = TypeVar("PromptedT", bound=Prompted)


def opened(
    example: PromptedT, engines: Sequence[Engine], program: Callable[[PromptedT], Program[None]]
) -> Program[None]:
    """Open the prompt of an example in every engine, run its program, and close the sequences.

    Raises:
        ValueError: a model has no ids for the prompt, or no room for them.
    """
    try:
        for engine in engines:
            example.sequences.append(engine.open(_prompt_ids(engine, example.prompt)))
        yield from program(example)
    finally:
        for sequence in example.sequences:
            sequence.engine.close(sequence)


def _prompt_ids(engine: Engine, prompt: Prompt) -> list[int]:
    ids = engine.model.prompt_ids(prompt)
    if not ids:
        raise ValueError(f"the prompt {prompt!r} has no tokens for {engine.model.name}")
    if len(ids) >= engine.context:
        raise ValueError(
            f"the prompt has {len(ids)} tokens, but {engine.model.name} has a context of"
            f" {engine.context}; shorten the prompt"
        )
    return ids


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


class TooManyRowsError(UserError):
    """So many examples at a time do not fit; fewer may."""


def out_of_memory(error: BaseException) -> bool:
    """Say whether memory ran out; what the CPU's allocator raises has no class of its own."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


@contextmanager
def memory_errors_named(rows: int) -> Iterator[None]:
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
