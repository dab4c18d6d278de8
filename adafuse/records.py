"""Prompts, and what decoding returns: one `Result` per prompt, with every round."""

from dataclasses import dataclass
from typing import Literal, get_args

from adafuse.errors import UserError, known

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side says in a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation as a prompt; each model puts it into its own chat template.

    The models write what follows: an answer, or where the prompt `continues` its last turn, the
    rest of that turn, whose beginning is given.

    Raises:
        UserError: no turns, an unknown role, or an answer that is not begun to be continued.
    """

    turns: tuple[Turn, ...]
    continues: bool = False

    def __post_init__(self) -> None:
        if odd := [turn.role for turn in self.turns if turn.role not in get_args(Role)]:
            raise UserError(known("role", odd[0], list(get_args(Role))))
        if not self.turns:
            raise UserError("a chat has no turns; give at least what the user says")
        if self.continues and self.turns[-1].role != "assistant":
            raise UserError(
                f"a chat continues a turn of {self.turns[-1].role!r}; only what the assistant"
                " began to say can be continued"
            )

    @property
    def question(self) -> str:
        """What the user said last."""
        said = [turn.content for turn in self.turns if turn.role == "user"]
        return said[-1] if said else ""


Prompt = str | Chat
"""What models continue: a text, or a conversation."""


def question_of(prompt: Prompt) -> str:
    """Return a prompt as one text, for what reads no conversations."""
    return prompt.question if isinstance(prompt, Chat) else prompt


def letters(prompt: Prompt) -> int:
    """Return how long a prompt is."""
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

    `nll` holds NLL_k(s) in nats per token, one value per model in the order of the ensemble
    (eq. 4); `fused` is F(s) under the fusion rule of the run (eq. 5); `proposers` are the numbers
    of the models that wrote the span, counted from 0.
    """

    text: str
    ends: bool
    proposers: tuple[int, ...]
    nll: tuple[float, ...]
    fused: float


@dataclass(frozen=True, slots=True)
class Round:
    """One round of Algorithm 1.

    `selected` is the index of the committed candidate (None when no candidate had a finite NLL),
    `words` the number of whitespace-separated words it committed, and `margins[k]` the
    start-of-word margins p(1) - p(2) that model k read while it proposed.
    """

    candidates: tuple[Candidate, ...]
    selected: int | None
    words: int
    margins: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Result:
    """The continuation of one prompt.

    `tokens`, `prompt_tokens` and `forwards` have one entry per model: ids held for the generated
    text, ids of the prompt, and forward passes the example took part in. `seconds` is the wall
    time from admission to the end, and that of the answers it started from; at batch sizes above 1
    examples share that time. `error` is a sentence and `traceback` where it came from; both are
    None unless `stop_reason` is "error".
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

    `logprobs` are log p_k(continuation | prompt) in nats, `tokens` its lengths in ids, and
    `greedy` says whether every id is the likeliest one there. With an `error`, all are as if the
    continuation were impossible.
    """

    logprobs: tuple[float, ...]
    tokens: tuple[int, ...]
    greedy: tuple[bool, ...]
    error: str | None = None
