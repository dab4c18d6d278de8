"""Prompts, and what decoding returns: one `Result` per prompt, with every round."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from adafuse.errors import UserError, unknown
from adafuse.records.views import ResultView, RoundView

Role = Literal["system", "user", "assistant"]
CHAT_DATE = "2024-07-26"
"""The day that chat templates see by default: one that does not end at midnight."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side says in a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation as a prompt; each model puts it into its own chat template.

    Turns may be given as messages, `{"role": "user", "content": "Who?"}`. The models write an
    answer, or the rest of the last turn if the prompt `continues` it.

    Raises:
        UserError: no turns, an unknown role, or a turn of another role that is to be continued.
    """

    turns: tuple[Turn, ...]
    continues: bool = False

    def __init__(self, turns: Sequence[Turn | Mapping[str, str]], continues: bool = False) -> None:
        object.__setattr__(self, "turns", tuple(map(_turn, turns)))
        object.__setattr__(self, "continues", continues)
        if odd := [turn.role for turn in self.turns if turn.role not in get_args(Role)]:
            raise UserError(unknown("role", odd[0], list(get_args(Role))))
        if not self.turns:
            raise UserError("a chat has no turns; give at least what the user says")
        if self.continues and self.turns[-1].role != "assistant":
            raise UserError(
                f"a chat continues a turn of {self.turns[-1].role!r}; only what the assistant"
                " began to say can be continued"
            )


Prompt = str | Chat
"""What models continue: a text, or a conversation."""
Messages = Sequence[Mapping[str, str]]
"""A conversation as other libraries write it: {"role": "user", "content": "Who?"}, ..."""


def _turn(given: Any) -> Turn:
    if isinstance(given, Turn):
        return given
    named = isinstance(given, Mapping) and set(given) == {"role", "content"}
    if named and isinstance(given["content"], str):
        return Turn(given["role"], given["content"])
    raise UserError(f"{given!r} is no message; give its role and its content, a text")


def as_prompt(given: object, name: str) -> Prompt:
    """Return a prompt, which may be a list of messages; `name` says which one it is.

    Raises:
        UserError: it is neither a text nor a conversation, or no text that can be written.
    """
    if isinstance(given, list | tuple) and given:
        given = Chat(given)
    if not isinstance(given, str | Chat):
        raise UserError(f"{name} is {given!r}; give a text, a Chat or a list of messages")
    if re.search("[\ud800-\udfff]", as_text(given)):
        raise UserError(f"{name} holds half of a surrogate pair, which is no character; remove it")
    return given


def question_of(prompt: Prompt) -> str:
    """Return a text prompt as it is, of a conversation what the user said last."""
    if isinstance(prompt, str):
        return prompt
    return next((turn.content for turn in reversed(prompt.turns) if turn.role == "user"), "")


def as_text(prompt: Prompt) -> str:
    """Return a prompt as text: of a conversation, its messages as JSON."""
    if isinstance(prompt, str):
        return prompt
    return json.dumps([asdict(turn) for turn in prompt.turns], ensure_ascii=False)


def letters(prompt: Prompt) -> int:
    return sum(len(t.content) for t in prompt.turns) if isinstance(prompt, Chat) else len(prompt)


StopReason = Literal["eos", "stop", "length", "error"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one model wrote on its own for a prompt, and the seconds that it took."""

    text: str
    stop_reason: StopReason
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """One span of the pool of a round.

    `nll` holds NLL_k(s) in nats per token (eq. 4), one per model, nan for one that was not asked;
    `fused` is F(s) (eq. 5);
    `proposers` are the numbers of the models that wrote the span, from 0.
    """

    text: str
    ends: bool
    proposers: tuple[int, ...]
    nll: tuple[float, ...]
    fused: float


@dataclass(frozen=True, slots=True, repr=False)
class Round(RoundView):
    """One round of Algorithm 1.

    `selected` is the index of the committed candidate (None: none had a finite NLL), `words` how
    many words it has, and `margins[k]` the margins p(1) - p(2) that model k read, one a word.
    `weights` are the w_k of this round where they are not those of the run.
    """

    candidates: tuple[Candidate, ...]
    selected: int | None
    words: int
    margins: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...] = ()

    @property
    def agreed(self) -> bool:
        """Whether all models proposed what was committed."""
        chosen = () if self.selected is None else self.candidates[self.selected].proposers
        return len(chosen) == len(self.margins)


@dataclass(frozen=True, slots=True, repr=False)
class Result(ResultView):
    """The continuation of one prompt.

    Its first `fits` characters are within max_new_tokens ids of some model; None: all are, as it is
    unless the last span goes beyond.
    `tokens` (ids of the text), `prompt_tokens` and `forwards` (passes that the example took part
    in) have one entry per model. `seconds` is wall time from admission to the end, which examples
    of a batch share, with that of the answers it started from. `error` is a sentence and
    `traceback` where it came from; both are None unless `stop_reason` is "error". `show()` prints
    how the text came about.
    """

    text: str
    stop_reason: StopReason
    rounds: tuple[Round, ...]
    tokens: tuple[int, ...]
    prompt_tokens: tuple[int, ...]
    forwards: tuple[int, ...]
    seconds: float
    error: str | None = None
    traceback: str | None = None
    fits: int | None = None


@dataclass(frozen=True, slots=True)
class Likelihood:
    """What the models say of a given continuation; one entry per model.

    `logprobs` are log p_k(continuation | prompt) in nats, `tokens` its lengths in ids; `greedy`
    says whether every id is the likeliest there. With an `error` it counts as impossible.
    """

    logprobs: tuple[float, ...]
    tokens: tuple[int, ...]
    greedy: tuple[bool, ...]
    error: str | None = None
