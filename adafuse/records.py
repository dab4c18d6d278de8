"""Prompts, and what decoding returns: one `Result` per prompt, with every round."""

from dataclasses import dataclass
from typing import Literal, get_args

from adafuse.errors import UserError, unknown

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side says in a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation as a prompt; each model puts it into its own chat template.

    The models write an answer, or the rest of the last turn if the prompt `continues` it.

    Raises:
        UserError: no turns, an unknown role, or a turn of another role that is to be continued.
    """

    turns: tuple[Turn, ...]
    continues: bool = False

    def __post_init__(self) -> None:
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


def question_of(prompt: Prompt) -> str:
    """Return a text prompt as it is, of a conversation what the user said last."""
    if isinstance(prompt, str):
        return prompt
    return next((turn.content for turn in reversed(prompt.turns) if turn.role == "user"), "")


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


@dataclass(frozen=True, slots=True)
class Round:
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


@dataclass(frozen=True, slots=True)
class Result:
    """The continuation of one prompt.

    `tokens` (ids of the text), `prompt_tokens` and `forwards` (passes that the example took part
    in) have one entry per model. `seconds` is wall time from admission to the end, which examples
    of a batch share, with that of the answers it started from. `error` is a sentence and
    `traceback` where it came from; both are None unless `stop_reason` is "error".
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
