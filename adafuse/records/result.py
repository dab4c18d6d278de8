"""Prompts, and what decoding returns: one `Result` per prompt, with every round."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from numbers import Real
from typing import Any, Literal, get_args

from adafuse.errors import UserError, unknown
from adafuse.records.views import ResultView, RoundView

Role = Literal["system", "user", "assistant"]
LARGEST_P = 1.001
"""A probability, or a difference of two, may be a little above 1 in float32."""
CHAT_DATE = "2024-07-26"
"""The day that chat templates see by default: one that does not end at midnight."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation.

    Attributes:
        role: who says it: "system", "user" or "assistant".
        content: what is said.
    """

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation as a prompt; each model applies its own chat template.

    Attributes:
        turns: the messages: `Turn`s, or mappings such as `{"role": "user", "content": "Who?"}`.
        continues: whether the last turn is the beginning of the assistant's answer, of which the
            models write the rest; by default it is if it is a turn of the assistant. Otherwise they
            write a new turn.
        chat_template_kwargs: further variables of the chat templates that read them, such as
            `{"enable_thinking": False}`; they replace those of the models.

    Raises:
        UserError: no turns, an unknown role, `continues` after a turn that is not the assistant's,
            or variables that are not JSON values by name.
    """

    turns: tuple[Turn, ...]
    continues: bool = False
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __init__(
        self,
        turns: Sequence[Turn | Mapping[str, str]],
        continues: bool | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        object.__setattr__(self, "turns", tuple(map(_turn, turns)))
        if continues is None:
            continues = self.turns[-1:] != () and self.turns[-1].role == "assistant"
        object.__setattr__(self, "continues", continues)
        object.__setattr__(self, "chat_template_kwargs", json_values(chat_template_kwargs or {}))
        if odd := [turn.role for turn in self.turns if turn.role not in get_args(Role)]:
            raise UserError(unknown("role", odd[0], list(get_args(Role))))
        if not self.turns:
            raise UserError("a chat has no turns; give at least a turn of the user")
        if self.continues and self.turns[-1].role != "assistant":
            raise UserError(
                f"a chat continues a turn of {self.turns[-1].role!r}; only a turn of"
                " the assistant can be continued"
            )


def json_values(given: object) -> dict[str, Any]:
    """Return `chat_template_kwargs` as plain JSON values, which digests and traces can hold.

    Raises:
        UserError: not a mapping by name, or a value that is not JSON.
    """
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise UserError(
            f"chat_template_kwargs is {given!r:.200}; give values by name, such as"
            ' {"enable_thinking": false}'
        )
    try:
        return dict(json.loads(json.dumps(dict(given), allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise UserError(
            f"chat_template_kwargs {given!r:.200} has a value that is not JSON ({error}); give"
            " texts, numbers, true or false"
        ) from None


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
    raise UserError(f"{given!r} is not a message; give its role and its content as text")


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
        raise UserError(f"{name} holds half of a surrogate pair, not a character; remove it")
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
    """The text that one model generated for a prompt by itself.

    Attributes:
        text: the text.
        stop_reason: why it ends, as in `Result`.
        seconds: how long the model took; it counts towards `Result.seconds`.
        thoughts: how many characters of the text are thoughts, as in `Result`; None if there are
            none, or if the chat templates of the ensemble say where they end.
    """

    text: str
    stop_reason: StopReason
    seconds: float = 0.0
    thoughts: int | None = None

    @property
    def answer(self) -> str:
        """The text after the thoughts, which is what methods compare."""
        return self.text[self.thoughts or 0 :]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate s of a round: a span of text that may be committed next.

    Attributes:
        text: the span.
        ends: the text ends after this span (the model that proposed it wrote an end token).
        proposers: the models that proposed it, by number from 0; empty if all models wrote it
            together, or a network that is none of them (the fuser of `llm_blender`).
        nll: NLL_k(s) of each model k, in nats per token (eq. 4); nan for a model that did not take
            part in the round. Empty if the candidate was not scored, because it was not needed.
        fused: F(s), the score that the fusion rule computes (eq. 5); lower is better.
    """

    text: str
    ends: bool
    proposers: tuple[int, ...]
    nll: tuple[float, ...]
    fused: float


@dataclass(frozen=True, slots=True, repr=False)
class Round(RoundView):
    """One round of Algorithm 1 of the paper.

    Attributes:
        candidates: all candidates of the round, without duplicates, except that a word that all
            models wrote together comes first even if a model proposed the same.
        selected: index of the committed candidate; None if none had a finite NLL, which ends the
            text with an error.
        words: the number of words of the committed candidate.
        margins: for each model k, the margins p(1) - p(2) that it read, one per word (section 3.2);
            empty for methods without margins.
        weights: w_k of this round; empty if they are those of the ensemble.
    """

    candidates: tuple[Candidate, ...]
    selected: int | None
    words: int
    margins: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...] = ()

    @property
    def joint(self) -> bool:
        """Whether all models wrote the committed span together, and none proposed it."""
        return (
            bool(self.margins)
            and self.selected is not None
            and not self.candidates[self.selected].proposers
        )

    def agreed_by(self, models: int) -> bool:
        """Whether all of so many models proposed the committed candidate."""
        chosen = () if self.selected is None else self.candidates[self.selected].proposers
        return len(chosen) == models

    def fault(self, models: int) -> str | None:
        """Return what is wrong with a round of so many models; None if nothing is."""
        numbers = {
            "NLL of each candidate": {len(each.nll) for each in self.candidates} - {0},
            "margins": {len(self.margins)} - {0},
            "weights": {len(self.weights)} - {0},
        }
        for what, found in numbers.items():
            if other := found - {models}:
                return f"has {what} of {min(other)} models; give one for each of {models}"
        flat = [own for own in self.margins if not isinstance(own, tuple | list)]
        if flat:
            return f"has the margins {flat[0]!r} of a model; give a tuple for each model"
        nlls = [nll for each in self.candidates for nll in each.nll]
        fused = [each.fused for each in self.candidates]
        for value in (*nlls, *fused, *self.weights, *(m for own in self.margins for m in own)):
            if not isinstance(value, Real):
                return f"has {value!r:.60} as a number; give an int or a float"
        if low := [nll for nll in nlls if nll < -(LARGEST_P - 1)]:
            return f"has an NLL of {low[0]:g}; give -log p, which is at least 0"
        chosen = 0 if self.selected is None else self.selected
        if chosen not in range(max(1, len(self.candidates))) or self.words not in range(1 << 31):
            return f"has selected {self.selected!r} and words {self.words!r}; give whole numbers"
        named = {number for each in self.candidates for number in each.proposers}
        if not named <= {*range(models)}:
            return f"has proposers {sorted(named)}; give numbers of models, from 0 to {models - 1}"
        for proposers in (each.proposers for each in self.candidates):
            if len({*proposers}) < len(proposers):
                return f"has a candidate with the proposers {proposers}; name each model once"
        if not all(0 <= weight < math.inf for weight in self.weights):
            return f"has weights {self.weights}; give finite numbers, none below 0"
        odd = [m for own in self.margins for m in own if not (0 <= m <= LARGEST_P or math.isnan(m))]
        return f"has a margin of {odd[0]:g}; give p(1) - p(2), from 0 to 1" if odd else None


@dataclass(frozen=True, slots=True, repr=False)
class Result(ResultView):
    """The text that was generated for one prompt, and how it came about.

    Attributes:
        text: the generated text, without the prompt.
        stop_reason: "eos" (the committed candidate ended the text), "stop" (a stop string),
            "length" (`max_new_tokens`, `max_rounds`, or no room in a model's context) or "error".
        rounds: every round, in order.
        tokens: for each model, the length of the text in its tokens.
        prompt_tokens: for each model, the length of the prompt in its tokens.
        forwards: for each model, the number of forward passes with this prompt.
        seconds: wall time from the first to the last forward pass for this prompt, plus that of
            the models' own answers if the method starts from these. Prompts of a batch are decoded
            at the same time, so their seconds do not add up.
        error: one sentence on what went wrong; None unless `stop_reason` is "error".
        traceback: where the error was raised; None without one, or for a mistake of the user's.
        fits: how many characters of the text fit into `max_new_tokens` tokens of some model; None
            if all do. A method that commits spans may exceed the limit with the last one.
        thoughts: how many characters of the text come before the answer of models that think: all
            of them if their thoughts did not end; None if there are no thoughts.
        evaluated: for each model, the number of tokens after the prompt that these passes ran:
            those of the text, and of candidates, samples and drafts that are not in it. None in
            traces of earlier versions.
        id: the number of the prompt, from 1; of a row that was read, the id that it has there.
        prompt: what was continued; of a row that was read, as text. Neither takes part in `==`.
        surfaces: the bytes of each committed token, if the method commits one per round; not in
            traces, and without part in `==`.

    As text (`print(result)`) it is its text, with the error if there is one.
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
    thoughts: int | None = None
    evaluated: tuple[int, ...] | None = None
    id: str | None = field(default=None, compare=False, kw_only=True)
    prompt: Prompt | None = field(default=None, compare=False, kw_only=True)
    surfaces: tuple[bytes, ...] = field(default=(), compare=False, kw_only=True)

    @property
    def answer(self) -> str:
        """The text after the thoughts, which is what is scored."""
        return self.text[self.thoughts or 0 :]


@dataclass(frozen=True, slots=True)
class Likelihood:
    """How likely each model finds a given continuation of a prompt; one entry per model k.

    Attributes:
        logprobs: log p_k(continuation | prompt) in nats, summed over the tokens.
        tokens: the length of the continuation in the model's tokens.
        greedy: whether greedy decoding would generate exactly these tokens.
        error: one sentence on what went wrong, otherwise None; the log-probabilities are then
            -inf.
    """

    logprobs: tuple[float, ...]
    tokens: tuple[int, ...]
    greedy: tuple[bool, ...]
    error: str | None = None
