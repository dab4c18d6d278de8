"""When a continuation ends: stop strings and limits, the options that every method shares."""

from collections.abc import Sequence
from typing import Literal

from pydantic import field_validator

from adafuse.decoding.options import BatchSize, MethodOptions, Positive
from adafuse.records import StopReason


class StopStrings:
    """The strings that end a continuation; the text is cut before the first of them."""

    def __init__(self, strings: Sequence[str] = ()) -> None:
        self.strings = tuple(strings)

    def within(self, text: str) -> bool:
        """Whether `text` contains a stop string."""
        return any(string in text for string in self.strings)

    def cut(self, text: str) -> str:
        """Return `text` up to the first stop string in it."""
        places = [text.find(string) for string in self.strings if string in text]
        return text[: min(places)] if places else text

    def settled(self, text: str) -> str:
        """Return `text`, which holds no stop string, without the end of it that may become one."""
        longest = max(map(len, self.strings), default=0)
        for start in range(max(0, len(text) - longest + 1), len(text)):
            if any(string.startswith(text[start:]) for string in self.strings):
                return text[:start]
        return text


class Limits(MethodOptions):
    """Ends a continuation whatever the method.

    `max_new_tokens` is reached when some model holds that many generated ids, `max_rounds` counts
    rounds (None: no limit), and the text is cut before the first of the `stop` strings.
    """

    max_new_tokens: Positive = 256
    max_rounds: Positive | None = None
    stop: tuple[str, ...] = ()

    def stop_reason(self, text: str, *, ended: bool, tokens: int, rounds: int) -> StopReason | None:
        """Say why a continuation stops here, or None if it goes on.

        Args:
            text: the continuation, not cut.
            ended: END was chosen.
            tokens: the most generated ids that some model holds.
            rounds: how many rounds there were.
        """
        if ended:
            return "eos"
        if StopStrings(self.stop).within(text):
            return "stop"
        return "length" if tokens >= self.max_new_tokens or rounds == self.max_rounds else None

    @field_validator("stop", mode="before")
    @classmethod
    def _as_strings(cls, value: object) -> object:
        if isinstance(value, str):
            return (value,)
        return tuple(value) if isinstance(value, list) else value

    @field_validator("stop")
    @classmethod
    def _not_empty(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "" in value:
            raise ValueError("must not hold an empty string, which is in every text")
        return value


class Settings(Limits):
    """How a run decodes besides its method: examples at a time, and which engine.

    A `batch_size` of "auto" is as many examples as fit into the memory that is free.
    """

    batch_size: BatchSize = 8
    engine: Literal["tree", "reference"] = "tree"
