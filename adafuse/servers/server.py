"""What the server of a model is asked, and in which form it answers."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import ClassVar, NamedTuple

from adafuse.errors import ExampleError, UserError
from adafuse.records.served import Served
from adafuse.servers.http import ATTEMPTS, Fault, Http

LEAST_LOGPROB = -9999.0
"""What servers say instead of an infinite one."""


MOST_IDS = 1 << 22
"""More than any vocabulary has."""


class Ask(NamedTuple):
    """What is asked: to write the ids `forced` after those of `prefix`, then `ahead` greedy ones.

    With `ends`, p(END) after the last of `forced` is wanted, and nothing need be written after it;
    nor after one of the strings `stop`. `slot` numbers the examples that are decoded at a time; a
    check has none.
    """

    prefix: tuple[int, ...]
    forced: tuple[int, ...] = ()
    ahead: int = 0
    ends: bool = False
    stop: tuple[str, ...] = ()
    slot: int | None = None


PROBE = Ask((3, 5, 7), (5, 3))
"""Ids that would hardly be written by themselves."""
FINGERPRINT = PROBE._replace(forced=(5, 3, 6, 4, 8, 3, 9))
"""What a model is recognised by: the two likeliest ids after each of these."""


class Step(NamedTuple):
    """What follows one token: the likeliest ids and their log-probabilities, highest first.

    `written` is the id that the server wrote there, `logprob` its log-probability, `log_end` is
    log p(END) if that was asked for.
    """

    top: tuple[tuple[int, float], ...]
    written: int
    logprob: float
    log_end: float | None = None

    @classmethod
    def of(cls, logprobs: Mapping[int, float], written: int, top: int) -> "Step":
        """Return a step of the log-probabilities that a server names, in any order.

        Raises:
            Fault: one is no log-probability, or there are too few; or their probabilities add up to
                more than 1, or to less than the likeliest of all ids have, as those of logits do.
        """
        ordered = sorted(logprobs.items(), key=lambda each: (-each[1], each[0]))[:top]
        odd = [value for value in logprobs.values() if not LEAST_LOGPROB < value <= 1e-3]
        if odd:
            raise Fault(f"a log-probability of {odd[0]:g}" + "; logits?" * (odd[0] > 0))
        if len(ordered) < top or not logprobs.get(written, math.nan) <= 1e-3:
            raise Fault("log-probabilities are missing")
        total = math.fsum(map(math.exp, logprobs.values()))
        if not top / MOST_IDS <= total <= 1 + 1e-3:
            raise Fault(f"probabilities that add up to {total:.3g}; logits?")
        return cls(tuple(ordered), written, logprobs[written])


class Weights(NamedTuple):
    """The model that a server is started with.

    `file` is a GGUF file in the folder or hub repository `path`; `gpus` are those that it has.
    """

    path: str
    file: str | None = None
    revision: str | None = None
    gpus: int = 0
    trust_remote_code: bool = False


_COUNTING = Lock()


@dataclass
class Counts:
    """How many requests were answered, ids written, and ids of prompts read, cached or not."""

    requests: int = 0
    written: int = 0
    prompt: int = 0
    cached: int = 0

    def add(self, written: int, prompt: int, cached: int) -> None:
        with _COUNTING:
            self.requests += 1
            self.written += written
            self.prompt += prompt
            self.cached += cached


class Server(ABC):
    """A model on a server, which calls it `name`; the probabilities of `end_ids` are p(END).

    Attributes:
        engine: the name of what runs there.
        slots: how many examples it decodes at a time.
    """

    engine: ClassVar[str]
    slots = 64

    def __init__(self, http: Http, name: str, end_ids: Sequence[int]) -> None:
        self.http = http
        self.name = name
        self.end_ids = tuple(end_ids)
        self.counts = Counts()
        self.served = self._described()
        self.served = self._now()
        self._threads = ThreadPoolExecutor(self.slots, self.engine)
        http.recheck, http.attempts = self.check_same, ATTEMPTS

    @classmethod
    @abstractmethod
    def recognizes(cls, owner: str) -> bool:
        """Whether a server is of this kind, by the owner that it names of its models."""

    @classmethod
    def command(cls, program: str, model: Weights, address: str, port: str) -> list[str]:
        """Return what starts a server of a model, to which a user's arguments are added.

        Raises:
            UserError: the model is not one for such a server.
        """
        raise UserError(
            f"the workflow cannot start servers of {cls.engine}; start it yourself, and name its"
            " URL as `server`"
        )

    @abstractmethod
    def describe(self) -> Served:
        """Ask the server what it is."""

    @abstractmethod
    def write(self, ask: Ask, top: int) -> list[Step]:
        """Return what follows the prefix, each forced id, and up to `ahead` further ids.

        Raises:
            ExampleError: the server fails, also when it is asked again, or refuses.
        """

    def tokenize(self, text: str) -> list[int] | None:
        """Return the ids of a text, without special ones; None if the server does not say."""
        return None

    def begin(self, ask: Ask, top: int) -> "Future[list[Step]]":
        """Send a request; its answer is awaited elsewhere."""
        return self._threads.submit(self.asked, ask, top)

    def asked(self, ask: Ask, top: int) -> list[Step]:
        """Return what `write` does.

        Raises:
            ExampleError: also if that is not what was asked for.
        """
        steps, count = self.write(ask, top), len(ask.forced)
        if len(steps) <= count or tuple(step.written for step in steps[:count]) != ask.forced:
            raise ExampleError(f"the server {self.http.url} does not write what it was told to")
        if ask.ends and steps[count].log_end is None:
            raise ExampleError(f"the server {self.http.url} does not say how likely an end is")
        return steps

    def close(self) -> None:
        """Send nothing more, and close all connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.http.close()

    def _now(self) -> Served:
        likely = [step.top[:2] for step in self.asked(FINGERPRINT, 2)]
        return self._described()._replace(likely=tuple(likely))

    def _described(self) -> Served:
        try:
            return self.describe()
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            odd = (
                f"the server {self.http.url} does not describe itself and its model {self.name} as"
                f" {self.engine} does ({type(error).__name__}: {error})"
            )
            self.http.failures.append(odd)
            raise UserError(f"{odd}; start {self.engine} with that model there") from error

    def check_same(self) -> None:
        """Refuse to go on with another model than at first.

        Raises:
            ExampleError: the server has one, or is of another version.
        """
        if not self.served.is_same(self._now()):
            changed = f"the server {self.http.url} has another model than when decoding began"
            self.http.failures.append(changed)
            raise ExampleError(f"{changed}; start again, as no text may be of two models")


def served_models(http: Http) -> dict[str, dict[str, object]]:
    """Return what a server says of its models, by name.

    Raises:
        UserError: nothing answers there, or something else than a server of models.
    """
    try:
        return {each["id"]: each for each in http.get("/v1/models")["data"]}
    except (ExampleError, KeyError, TypeError) as error:
        raise UserError(
            f"there is no server of a model at {http.url} ({error}); start it, or check the URL and"
            " the API key"
        ) from error
