"""Advances many examples at once: one forward per model over all rows that asked for something."""

import gc
import time
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import isgenerator
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import torch

from adafuse.engine.node import Engine, Evaluator, Pending, Program, Request, TokenSequence
from adafuse.errors import UserError
from adafuse.models.memory import out_of_memory
from adafuse.plugins import said
from adafuse.records.result import Prompt

if TYPE_CHECKING:
    from adafuse.models.language_model import LanguageModel

ExampleT = TypeVar("ExampleT")

FEW = 0.1
"""The share of the examples for which a device does not stay with an engine."""
LONGEST_WAIT = 1.0
"""Seconds for which nothing is admitted while nobody answers."""

MOST_TURNS = 1_000_000
"""A program that asks so many times, even for nothing, never ends."""


@dataclass(frozen=True, slots=True)
class Advanced(Generic[ExampleT]):
    """An event: `example` went on, and waits for its next request."""

    example: ExampleT


@dataclass(frozen=True, slots=True)
class Finished(Generic[ExampleT]):
    """An event: `example` ended `seconds` after its admission.

    Where it raised, `error` is a sentence; `traceback` is where that came from, unless it is a
    mistake of the user's.
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
    started: float = field(default_factory=time.perf_counter)
    waiting: Sequence[Request] = ()
    pending: list[Pending] = field(default_factory=list)
    failure: Exception | None = None
    turns: int = 0

    def send(self) -> None:
        """Send what is answered elsewhere; throw what is no request back to who yielded it."""
        by_engine: dict[Evaluator, list[Request]] = {}
        try:
            for request in self.waiting:
                by_engine.setdefault(request.engine, []).append(request)
        except (AttributeError, TypeError):
            what = f"{self.waiting!r:.80} was yielded, or returned by what is no generator"
            advice = "write `yield from`" if isgenerator(self.waiting) else "yield a list of nodes"
            self.waiting, self.failure = (), TypeError(f"{what}; {advice}")
        self.turns += 1
        if self.turns == MOST_TURNS:
            self.failure = RuntimeError(f"it does not end: it yielded {MOST_TURNS:,} times")
        sent = {engine: engine.begin(own) for engine, own in by_engine.items()}
        self.pending = [each for pending in sent.values() for each in pending or ()]
        self.waiting = [r for r in self.waiting if sent[r.engine] is None]

    def take(self) -> None:
        """Fill in the answers that have come."""
        for each in [pending for pending in self.pending if pending.answer.done()]:
            self.pending.remove(each)
            try:
                each.finish()
            except Exception as error:
                if out_of_memory(error):
                    raise
                self.failure = self.failure or error


class Scheduler(Generic[ExampleT]):
    """Keeps up to `batch_size` examples alive; a finished one is replaced from the source.

    Examples need not be in step: in each turn every device runs the engine that most examples wait
    for, with whatever nodes they ask for, and goes on with it while a `FEW` of them do, so that the
    others gather and forwards are few and full. All devices are started before one is waited for,
    so that they overlap. What is answered elsewhere is sent at once for each example, which goes on
    when its own answers are there.
    """

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._live: list[_Live[ExampleT]] = []
        self._last: dict[Hashable, Evaluator] = {}

    def run(self, source: Iterator[tuple[ExampleT, Program[None]]]) -> Iterator[Event[ExampleT]]:
        """Run the programs of all examples, and yield what happens to them, in any order.

        The source is asked for more whenever there is room; it may grow until it is exhausted.

        Raises:
            TooManyRowsError: memory ran out.
        """
        try:
            while self._admit(source):  # take examples
                ready = [live for live in self._live if not (live.waiting or live.pending)]
                for live in ready:
                    yield self._advance(live)  # send the answers, get the next requests or the end
                if not ready:
                    self._evaluate()  # ask the engines
                    self._receive()  # and take what others have answered
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            raise TooManyRowsError(self._batch_size, str(error)) from error

    def _admit(self, source: Iterator[tuple[ExampleT, Program[None]]]) -> bool:
        """Fill up from the source; return whether there is anything to do."""
        while len(self._live) < self._batch_size and (job := next(source, None)) is not None:
            self._live.append(_Live(*job))
        return bool(self._live)

    def _advance(self, live: _Live[ExampleT]) -> Event[ExampleT]:
        """Resume one example up to its next request or its end."""
        try:
            failure, live.failure = live.failure, None
            live.waiting = next(live.program) if failure is None else live.program.throw(failure)
            live.send()
            return Advanced(live.example)
        except StopIteration:
            error, trace = None, None
        except Exception as raised:  # the border of an example: the others go on
            if out_of_memory(raised):  # in which the others have a part
                raise
            error = said(raised)  # a mistake of the user's is all said by its sentence
            trace = None if isinstance(raised, UserError) else traceback.format_exc()
        self._live.remove(live)
        return Finished(live.example, time.perf_counter() - live.started, error, trace)

    def _evaluate(self) -> None:
        """Fill in what one engine per device is asked for, ties to the one asked first."""
        few = FEW * len(self._live)
        requests: dict[Evaluator, list[Request]] = {}
        examples: Counter[Evaluator] = Counter()
        for live in self._live:
            examples.update(dict.fromkeys(request.engine for request in live.waiting).keys())
            for request in live.waiting:
                requests.setdefault(request.engine, []).append(request)
        chosen = {at: last for at, last in self._last.items() if examples[last] > few}
        for engine, _ in examples.most_common():
            chosen.setdefault(engine.device, engine)
        self._last = chosen
        finishing = []
        for engine in chosen.values():
            with self._or_apart(engine):
                finishing.append((engine, engine.start(requests[engine])))
        for engine, finish in finishing:
            with self._or_apart(engine):
                finish()
        done = set(chosen.values())
        for live in self._live:
            live.waiting = [request for request in live.waiting if request.engine not in done]

    def _receive(self) -> None:
        """Take the answers from elsewhere; wait for one if nothing else can be done."""
        if answers := [each.answer for live in self._live for each in live.pending]:
            busy = any(live.waiting or not live.pending for live in self._live)
            wait(answers, timeout=0 if busy else LONGEST_WAIT, return_when=FIRST_COMPLETED)
            for live in self._live:
                live.take()

    @contextmanager
    def _or_apart(self, engine: Evaluator) -> Iterator[None]:
        """Where an engine fails, have it fill in what each example asks apart from the others."""
        try:
            yield
        except Exception as error:
            if out_of_memory(error):
                raise
            for live in self._live:
                try:
                    engine.evaluate([r for r in live.waiting if r.engine is engine])
                except Exception as raised:  # the border of an example: the others go on
                    if out_of_memory(raised):
                        raise
                    live.failure = live.failure or raised


class Prompted(Protocol):
    """What a program runs on: prompt number `index`, open in every model."""

    index: int
    prompt: Prompt
    sequences: list[TokenSequence]


PromptedT = TypeVar("PromptedT", bound=Prompted)


def whole_prompt(example: Prompted, model: "LanguageModel") -> list[int]:
    """Return the ids of a prompt that leaves room for one more."""
    ids = model.prompt_ids(example.prompt)
    if len(ids) >= model.context:
        raise ValueError(
            f"the prompt has {len(ids)} tokens, but {model.name} has a context of"
            f" {model.context}; shorten the prompt"
        )
    return ids


def opened(
    example: PromptedT,
    engines: Sequence[Engine],
    program: Callable[[PromptedT], Program[None]],
    ids: "Callable[[PromptedT, LanguageModel], list[int]]" = whole_prompt,
) -> Program[None]:
    """Open the prompt of an example in every engine, run its program, and close the sequences."""
    try:
        for engine in engines:
            if not (own := ids(example, engine.model)):
                raise ValueError(
                    f"the prompt {example.prompt!r} has no tokens for {engine.model.name}"
                )
            example.sequences.append(engine.open(own))
        yield from program(example)
    finally:
        for sequence in example.sequences:
            sequence.engine.close(sequence)


class TooManyRowsError(UserError):
    """So many examples at a time do not fit; fewer may."""

    def __init__(self, rows: int, error: str) -> None:
        reason = " ".join(error.split("\n")[0].split())[:120]
        super().__init__(
            f"{rows} examples at a time are too many for the memory ({reason}); lower batch_size,"
            " set it to auto, or give the models other or more devices, or a smaller dtype"
        )


def release() -> None:
    """Give back what nothing refers to any more, on the devices as well."""
    gc.collect()
    torch.cuda.empty_cache()
