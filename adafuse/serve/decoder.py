"""The thread that decodes: requests join the batch that runs, and leave it when nobody waits."""

import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from adafuse.decoding.drafts import Lookup
from adafuse.decoding.round import Example
from adafuse.decoding.run import Batch, Run, lengths_within, result_of
from adafuse.engine.forward import FORWARD_COST
from adafuse.engine.node import Engine, Program
from adafuse.engine.scheduler import Event, Finished, Scheduler, TooManyRowsError, opened, release
from adafuse.models.language_model import LanguageModel
from adafuse.records.result import Prompt, Result, Round, StopReason, question_of
from adafuse.serve.metrics import Metrics, Times
from adafuse.serve.protocol import RequestError
from adafuse.tokenization.prompts import common
from adafuse.tokenization.text import UNFINISHED
from adafuse.tokenization.thoughts import Thoughts

logger = logging.getLogger(__name__)


class News(NamedTuple):
    """What is new of a text that is being decoded."""

    text: str
    rounds: tuple[Round, ...]


@dataclass(eq=False)
class Job:
    """A prompt, how it is decoded, and who is told.

    `name` is that of its reply with its number. `tell` is called in the decoding thread, with text
    as it is settled and with rounds if it is `streamed`, and at last with the result; it must not
    wait. `thoughts` are those that the text may begin with, and comes without in its reply. Whoever
    no longer wants the text sets `gone`; at the `deadline` (time.monotonic) decoding ends, too, and
    the job is `overdue`.
    """

    name: str
    run: Run
    prompt: Prompt
    tell: Callable[[News | Result], None]
    deadline: float
    streamed: bool
    thoughts: Thoughts | None = None
    gone: bool = False
    overdue: bool = False
    sent: str = ""
    rounds: int = 0
    times: Times = field(default_factory=Times)

    def tell_news(self, example: Example) -> None:
        """Tell what is settled and not yet told, but no text that the method may replace."""
        text = self.sent if self.run.method.replaces_text else example.settled
        news = News(text[len(self.sent) :], tuple(example.rounds[self.rounds :]))
        self.sent, self.rounds = text, len(example.rounds)
        if any(news):
            self.tell(news)

    def unwanted(self) -> bool:
        """Whether decoding it any further is of no use."""
        if not self.gone and time.monotonic() > self.deadline:
            self.overdue = True
        return self.gone or self.overdue


def within_limit(example: Example, result: Result) -> Result:
    """Return a result whose text has at most max_new_tokens tokens in each model.

    Spans are committed whole, so the last one may go beyond: of a model that holds more ids, the
    text of the first ones counts, without a character that they only begin.
    """
    if result.error is not None:
        return result
    lengths = lengths_within(example)
    text = result.text[: min((length for _, length in lengths), default=None)]
    if result.stop_reason == "length" or text != result.text:
        text = text.rstrip(UNFINISHED)
    reason: StopReason = result.stop_reason if text == result.text else "length"
    thoughts = result.thoughts and min(result.thoughts, len(text))
    tokens = tuple(min(count, example.limits.max_new_tokens) for count, _ in lengths)
    return replace(
        result, text=text, stop_reason=reason, tokens=tokens, fits=None, thoughts=thoughts
    )


class DecodingThread:
    """Decodes jobs in a batch that they join and leave; up to `most_waiting` others wait."""

    def __init__(self, batch: Batch, most_waiting: int) -> None:
        self.batch, self.models = batch, batch.models
        names = [model.name for model in self.models]
        self.metrics = Metrics(names, lambda: self.waiting, lambda: self.running)
        self._most_waiting = most_waiting
        self._waiting: deque[Job] = deque()
        self._live: dict[Example, Job] = {}
        self._engines: list[Engine] = []
        self._before: dict[Engine, list[int]] = {}
        self._lookups = defaultdict[LanguageModel, Lookup](Lookup)
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="adafuse-decoder", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether it decodes."""
        return self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """How many prompts wait for a place in the batch."""
        return sum(not job.gone for job in list(self._waiting))

    @property
    def running(self) -> int:
        """How many prompts are being decoded."""
        return len(self._live)

    def start(self) -> None:
        """Begin to decode."""
        self._thread.start()

    def submit(self, jobs: list[Job]) -> None:
        """Take jobs, all or none.

        Raises:
            RequestError: too many wait, or the decoder is closing.
        """
        with self._changed:
            if self._closing:
                raise RequestError("the server is stopping; ask another one", 503, "stopping")
            if self.waiting + len(jobs) > self._most_waiting + self.batch.rows - self.running:
                raise RequestError(
                    f"{self.waiting} prompts wait already; try again later", 429, "queue_full"
                )
            self._waiting.extend(jobs)
            self._changed.notify()

    def close(self) -> None:
        """Take no more jobs, finish those that there are, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._awaited():
                if (failure := self._batch()) is not None:
                    self._fail(failure)  # when nothing holds the engines any more
        finally:
            with self._changed:
                self._closing = True
            for job in (*self._live.values(), *self._waiting):
                job.tell(self._nothing(job, "the decoder has stopped; see the server's log"))

    def _awaited(self) -> bool:
        """Wait for a job; return whether there is one."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            return bool(self._waiting)

    def _batch(self) -> str | None:
        """Decode until nothing is left; return why that cannot go on."""
        try:
            for event in Scheduler[Example](self.batch.rows).run(self):
                self._tell(event)
        except TooManyRowsError as error:
            self.batch = self.batch.halved(error)
            return str(error)
        except Exception as error:  # the border of the server: the next requests go on
            logger.exception("decoding failed")
            return str(error) or type(error).__name__
        return None

    def __iter__(self) -> Iterator[tuple[Example, Program[None]]]:
        return self

    def __next__(self) -> tuple[Example, Program[None]]:
        """Return the next job's example; there may be more of them after the last one."""
        while self._waiting:
            job = self._waiting.popleft()
            if not job.unwanted():
                return self._begun(job)
            self._ended(job, self._nothing(job))
        raise StopIteration

    def _begun(self, job: Job) -> tuple[Example, Program[None]]:
        run, job.times.began = job.run, time.monotonic()
        example = Example(run.weights, run.settings, job.prompt, question_of(job.prompt))
        self._live[example] = job

        def program(example: Example) -> Program[None]:
            with closing(run.program(example, self._lookups)) as steps, suppress(StopIteration):
                requests = next(steps)
                while not job.unwanted():
                    try:
                        yield requests
                    except Exception as failure:  # noqa: BLE001 - the run tells whose it is
                        requests = steps.throw(failure)
                    else:
                        requests = next(steps)
                example.reason = "length"

        engines = self._engines_for(run.method.top)
        self._share(engines, job.prompt)
        return example, opened(example, engines, program)

    def _share(self, engines: list[Engine], prompt: Prompt) -> None:
        """Read once what the prompt and the one before it begin with; the next ones may, too.

        That takes a forward of its own, and is left if it would save no more than that.
        """
        for engine in engines:
            ids = engine.model.prompt_ids(prompt)
            before, self._before[engine] = self._before.get(engine, []), ids
            engine.share(ids[: common(before, ids[:-1])], FORWARD_COST[engine.model.device.type])

    def _engines_for(self, top: int) -> list[Engine]:
        """Return the engines of all jobs, which read as many of the likeliest ids as any needs."""
        self._engines = self._engines or self.batch.engines("tree", top)
        for engine in self._engines:
            engine.top = max(engine.top, top)
            if engine.spare:
                engine.spare = FORWARD_COST[engine.model.device.type] / self.running
        return self._engines

    def _tell(self, event: Event[Example]) -> None:
        job = self._live[event.example]
        times = job.times
        if times.first is None and event.example.rounds and not job.run.method.replaces_text:
            lengths = (len(s.ids) - s.prompt_length for s in event.example.sequences)
            times.first, times.tokens = time.monotonic(), max(lengths, default=0)
        if isinstance(event, Finished):
            del self._live[event.example]
            result = result_of(event)
            replaced = job.run.replaced(job.sent, result.text)
            if result.error is None and replaced is not None:
                result = replace(result, stop_reason="error", error=replaced)
            self._ended(job, within_limit(event.example, result))
        elif event.example.reason is not None:
            return  # what is beyond the limit is cut when it has finished
        elif job.streamed and not job.gone:
            job.tell_news(event.example)

    def _ended(self, job: Job, result: Result) -> None:
        how: Literal["gone", "late", "error", "done"] = "done"
        if job.overdue:
            how = "late"
        elif job.gone:
            how = "gone"
        elif result.error is not None:
            how = "error"
        self.metrics.ended(job.name, job.run.method.name, how, job.times, result)
        if not job.gone:
            job.tell(result)

    def _fail(self, error: str) -> None:
        """End what was being decoded with an error; the next jobs get new engines."""
        for job in self._live.values():
            self._ended(job, self._nothing(job, error))
        self._live.clear()
        self._engines.clear()
        self._before.clear()
        release()

    def _nothing(self, job: Job, error: str | None = None) -> Result:
        none = (0,) * len(self.models)
        reason: Literal["error", "length"] = "length" if error is None else "error"
        return Result(job.sent, reason, (), none, none, none, 0.0, error=error)
