"""What decoding returns: one `Result` per prompt, with every round that led to its text."""

from dataclasses import dataclass
from typing import Literal

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
