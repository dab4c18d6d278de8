"""Algorithm 1 (arXiv 2601.06022): the state of one example, and the loop that decodes it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from adafuse.decoding.candidates import Pool, Span
from adafuse.decoding.fusion import PoolFusion, is_score
from adafuse.decoding.words import Limits, StopStrings, WordRules
from adafuse.engine.node import ContextFullError, Program, TokenSequence
from adafuse.errors import ExampleError
from adafuse.records.result import Answer, Chat, Prompt, Round, StopReason
from adafuse.tokenization.text import UNFINISHED, whole_characters
from adafuse.tokenization.thoughts import Thoughts


@dataclass(eq=False)
class Example:
    """One prompt while it is decoded: its text Y so far, each model's `sequences`, its rounds.

    `weights` are w_k (`weighed`: by its prompt), `question` is the prompt without few-shot
    examples, `answers` are the models' own answers if they are given, `committed` the spans of Y,
    or `surfaces` the bytes of its tokens, `out` the numbers of the models that no longer take part,
    and `reason` is why decoding ended, None before. `thoughts` are those that Y may begin with. If
    another text `replaced` Y, `thought` is how many characters of it are thoughts.
    """

    weights: Sequence[float]
    limits: Limits
    prompt: Prompt = ""
    question: str = ""
    answers: tuple[Answer, ...] | None = None
    index: int = 0
    sequences: list[TokenSequence] = field(default_factory=list)
    text: str = ""
    rounds: list[Round] = field(default_factory=list)
    committed: list[Span] = field(default_factory=list)
    surfaces: list[bytes] = field(default_factory=list)
    out: set[int] = field(default_factory=set)
    weighed: bool = False
    reason: StopReason | None = None
    thoughts: Thoughts | None = None
    replaced: bool = False
    thought: int | None = None

    def __post_init__(self) -> None:
        self.run_weights = tuple(self.weights)

    @property
    def reweighed(self) -> bool:
        """Whether rounds have weights of this example, which then stand in the trace."""
        return self.weighed or tuple(self.weights) != self.run_weights

    @property
    def stops(self) -> StopStrings:
        return StopStrings(self.limits.stop, thoughts=self.thoughts)

    @property
    def active(self) -> dict[int, TokenSequence]:
        """The sequences of the models that take part, by number."""
        return {k: sequence for k, sequence in enumerate(self.sequences) if k not in self.out}

    @property
    def begins(self) -> bool:
        """Whether the next token is the first after a chat template.

        An answer begins with a space after some templates, and without one after others.
        """
        prompt, models = self.prompt, [sequence.model for sequence in self.sequences]
        if isinstance(prompt, Chat):
            return not self.rounds and not prompt.continues
        return not self.rounds and any(model.chat for model in models)

    @property
    def stops_after(self) -> StopStrings:
        """The stop strings for a continuation of Y; one may begin inside Y."""
        return replace(self.stops, before=self.text)

    def rules(self, max_tokens: int, hard_limit: int | None = None) -> WordRules:
        """Return the rules for where a word ends after Y, at the latest after `max_tokens`."""
        return WordRules(self.stops_after, max_tokens, hard_limit)

    @property
    def settled(self) -> str:
        """The part of Y that is final: no stop string or unfinished character can shorten it."""
        if self.reason is not None:
            return self.text
        return self.stops.settled(self.text.rstrip(UNFINISHED))

    def fused(
        self, candidates: Sequence[Span], pool: Pool, fuse: PoolFusion
    ) -> tuple[list[Span], Sequence[float]]:
        """Give scored candidates their F(s) (eq. 5).

        Return those with a finite NLL under every model, the best first (of equal scores the
        earlier), and w_k.
        """
        finite = [s for s in candidates if all(math.isfinite(s.nll[k]) for k in pool.active)]
        weights = tuple(pool.weights(self.weights))  # which a rule cannot change
        before = {id(span): (span.text, span.ends, span.nll) for span in finite}
        given = fuse(finite, weights) if finite else ([], weights)
        scores, own = _two(given, "fuse", "F of each span, and the weights")
        if before != {id(span): (span.text, span.ends, span.nll) for span in finite}:
            raise ValueError("F changed the spans that it was given; it may only read them")
        if len(scores) != len(finite):
            raise ValueError(f"fuse returned {len(scores)} F of {len(finite)} spans; return all")
        for candidate, score in zip(finite, scores, strict=True):
            if not is_score(score):
                raise ValueError(f"fuse returned the F {score!r:.60}; return finite numbers")
            candidate.fused = float(score)
        return sorted(finite, key=lambda candidate: candidate.fused), own

    def select(self, pool: Pool, fuse: PoolFusion) -> Span:
        """Return the candidate with the smallest F(s) (eq. 6), and record the round."""
        ranked, weights = self.fused(pool.candidates, pool, fuse)
        return self.take(pool, next(iter(ranked), None), weights)

    def take(self, pool: Pool, best: Span | None, weights: Sequence[float]) -> Span:
        """Record the round with its w_k, and return the candidate that is committed."""
        known = not self.reweighed and list(weights) == pool.weights(self.weights)
        self.rounds.append(pool.record(best, () if known else weights))
        if best is None:
            names = [
                sequence.model.name
                for number, sequence in pool.active.items()
                if any(not math.isfinite(candidate.nll[number]) for candidate in pool.candidates)
            ]
            raise ExampleError(f"no candidate has a finite NLL under {' and '.join(names)}")
        return best

    def commit(self, candidate: Span) -> None:
        """Append a candidate to Y, and its tokens to the sequence of every model (eq. 7)."""
        self.text += candidate.text
        for sequence in self.active.values():
            sequence.engine.commit(candidate.nodes[sequence])
        candidate.nodes.clear()
        self.committed.append(candidate)

    def check_stop(self, *, ended: bool, tokens: int | None = None) -> None:
        """Set `reason` if Y `ended`, or has a stop string or reached a limit, and cut Y there.

        `tokens` is the length of Y if it counts tokens that are not committed yet.
        """
        if tokens is None:
            tokens = max(sequence.generated for sequence in self.sequences)
        stopped, rounds = self.stops.within(self.text), len(self.rounds)
        self.reason = self.limits.stop_reason(
            ended=ended, stopped=stopped, tokens=tokens, rounds=rounds
        )
        self.text = self.stops.cut(self.text)
        if self.reason in ("length", "eos"):
            for sequence in self.sequences:
                self.text = whole_characters(sequence.model, self.text, sequence.ids)

    def finish(self, text: str, reason: StopReason, thought: int | None = None) -> None:
        """Replace Y by `text`, of which `thought` characters are thoughts, and end decoding.

        It is cut before the first stop string after them.
        """
        if not isinstance(text, str) or not 0 <= (thought or 0) <= len(text):
            raise ValueError(f"finish was given {text!r:.60} and {thought}; give a text and a part")
        self.thoughts, self.thought, self.replaced = None, thought, True
        answer = text[thought or 0 :]
        self.text = text[: thought or 0] + self.stops.cut(answer)
        self.reason = reason if self.text == text else "stop"

    @property
    def thought_length(self) -> int | None:
        """How many characters of Y are thoughts; None if there are none."""
        marks = self.thoughts
        return self.thought if marks is None else marks.length(self.text) or None


Proposal = tuple[Sequence[Span], tuple[float, ...]]
"""What one model proposes in a round, and the margin of each word that it read for it."""

Propose = Callable[[TokenSequence], Program[Proposal]]


@dataclass(frozen=True, slots=True)
class Leader:
    """The model that decides a round without the others while it is sure.

    It does while it proposes one span, each of whose tokens, END included, has a margin of at least
    `sure`. The others read later what it wrote, when they are asked again. A model of weight 0
    decides nothing.
    """

    number: int
    sure: float

    def decides(self, candidates: Sequence[Span]) -> bool:
        """Whether the leader's proposal is committed as it is."""
        if len(candidates) != 1:
            return False
        (span,) = candidates
        margins = [margin for margin, _ in span.doubts(span.node.sequence.root)]
        return min(margins, default=0.0) >= self.sure


Settle = Callable[[Example, Pool, PoolFusion], Program[Span]]
"""Returns what is committed in a round with several candidates, and records the round."""


def choose(example: Example, pool: Pool, fuse: PoolFusion) -> Program[Span]:
    """Score the candidates (eq. 4) and select one (eq. 5, 6)."""
    yield from pool.score()
    return example.select(pool, fuse)


def fuse_rounds(
    example: Example,
    propose: Propose,
    fuse: PoolFusion,
    leader: Leader | None = None,
    settle: Settle | None = None,
) -> Program[None]:
    """Propose, pool, score, select and commit until the example stops."""
    if leader is not None and not example.weights[leader.number]:
        leader = None
    try:
        while example.reason is None:
            active, pool = example.active, None
            if leader is not None and leader.number in active:
                own = {leader.number: active[leader.number]}
                pool = yield from _pooled(example, propose, own)
                pool = pool if leader.decides(pool.candidates) else None
            if pool is None:
                pool = yield from _pooled(example, propose, active)
            if example.reason is not None:  # `propose` ended the text
                return
            sure = len(pool.candidates) == 1 or len(pool.active) == 1
            decide = choose if settle is None or sure else settle
            rounds = len(example.rounds)
            best = yield from decide(example, pool, fuse)
            taken = [r.candidates[r.selected or 0].text for r in example.rounds[rounds:]]
            if taken != [best.text]:
                raise ValueError("settle must record the span that it returns, with Example.take")
            if example.reason is not None:
                return
            pool.leave(best, active.values())
            example.commit(best)  # eq. 7
            example.check_stop(ended=best.ends)
    except ContextFullError:
        example.reason = "length"


def _pooled(
    example: Example, propose: Propose, active: Mapping[int, TokenSequence]
) -> Program[Pool]:
    """Return what the models that are asked propose (sections 3.2, 3.3)."""
    out = example.out | (set(range(len(example.sequences))) - set(active))
    pool = Pool(example.sequences, begins=example.begins, out=out)
    for number, sequence in active.items():
        yield from pool.read_by(sequence)
        given = yield from propose(sequence)
        written, margins = _two(given, "propose", "a list of spans, and the margins")
        candidates = list(written)
        for candidate in candidates:
            node = candidate.nodes.get(sequence)
            if node is None or node.origin is not sequence.root:
                raise ValueError(
                    f"propose returned {candidate.text!r:.60}, a span of another model or round;"
                    " write one after the root of the sequence that it was given"
                )
            candidate.text = example.stops_after.through(candidate.text)
        pool.add(number, candidates, margins)
    if not pool.candidates and example.reason is None:
        raise ValueError("propose returned no span for any model; return one at least")
    return pool


def _two(given: Any, function: str, parts: str) -> Any:
    """Return the two parts of what a function of somebody else's returned."""
    if not isinstance(given, tuple) or len(given) != 2:
        raise TypeError(f"{function} returned {given!r:.60}; return {parts}")
    return given
