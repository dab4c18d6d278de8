"""The candidates of a round: what the models propose, read and scored by all of them."""

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from adafuse.engine.node import ContextFullError, Node, Program, TokenSequence, evaluated
from adafuse.records import result as records
from adafuse.tokenization.text import LONGEST_CONTEXT


@dataclass(eq=False, slots=True)
class Span:
    """A candidate s: a span of `text` that may be committed next; it `ends` the text or does not.

    `nodes` holds its last node in the token tree of each model that has read it, `margins[k]` the
    margins of each model k that proposed it, `words` its number of words, END included. Its first
    `thoughts` characters are read and not scored. Once it is scored, `nll[k]` is NLL_k(s) in nats
    per token (eq. 4) over its T = `tokens[k]` tokens, END included, nan for a model that no longer
    takes part; `fused` is F(s) (eq. 5).
    """

    text: str = ""
    ends: bool = False
    words: int = 0
    thoughts: int = 0
    nodes: dict[TokenSequence, Node] = field(default_factory=dict)
    margins: dict[int, tuple[float, ...]] = field(default_factory=dict)
    nll: tuple[float, ...] = ()
    tokens: tuple[int, ...] = ()
    fused: float = math.inf

    @property
    def node(self) -> Node:
        """The last node in the token tree of the model that proposed the span first."""
        return next(iter(self.nodes.values()))

    @property
    def proposers(self) -> tuple[int, ...]:
        """The numbers of the models that proposed the span, in the order of their proposals."""
        return tuple(self.margins)

    @property
    def length(self) -> int:
        """Number of words, at least 1, plus 1 for END: a length that depends on no tokenizer."""
        return max(1, len(self.text.split())) + self.ends

    def logprob(self, number: int) -> float:
        """Return log p_k(s) of the whole span under model k, in nats."""
        return -self.tokens[number] * self.nll[number]

    def score(self, sequences: Sequence[TokenSequence], out: Collection[int] = ()) -> None:
        """Compute NLL_k(s) of each model k that is not `out` (eq. 4); inf where T is 0."""
        by_model = [
            [] if k in out else list(self._logprobs(sequence))
            for k, sequence in enumerate(sequences)
        ]
        self.tokens = tuple(map(len, by_model))
        nll = [-math.fsum(row) / len(row) if row else math.inf for row in by_model]
        self.nll = tuple(math.nan if k in out else value for k, value in enumerate(nll))

    def doubts(self, start: Node) -> list[tuple[float, Node]]:
        """Return margin and preceding node of each token after `start`, END included.

        They are those of the model that proposed the span first.
        """
        steps = [node for node in self.node.path() if node.depth > start.depth]
        before = [start, *steps][: len(steps) + self.ends]
        return [(node.next.margin, node) for node in before if node.next is not None]

    def record(self) -> records.Candidate:
        return records.Candidate(self.text, self.ends, self.proposers, self.nll, self.fused)

    def _logprobs(self, sequence: TokenSequence) -> Iterator[float]:
        node = self.nodes[sequence]
        path = node.path()
        for step in path[self._unscored(sequence, path) :]:
            assert step.logprob is not None, "a candidate was scored before it was read"
            yield step.logprob
        if self.ends:
            assert node.next is not None and node.next.end_known
            yield node.next.log_end

    def _unscored(self, sequence: TokenSequence, path: Sequence[Node]) -> int:
        """Return how many tokens, from the first, hold nothing but thoughts."""
        if not self.thoughts:
            return 0
        place = sequence.model.anchor(sequence.root.last_ids(LONGEST_CONTEXT))
        ids = [step.token for step in path]
        sizes = range(1, len(ids) + 1)
        return bisect_right(sizes, self.thoughts, key=lambda size: len(place.begun(ids[:size])))


class Pool:
    """The candidates of a round: the union of what all models propose, keyed by text and END.

    They are in order of the model that proposed them first, then of its branches.

    Models whose numbers are `out` neither propose nor score, and have no weight; the others are
    `active`.

    Where the text `begins` after chat templates, " Paris" of one model and "Paris" of another are
    one candidate, and each model reads a foreign one with or without the space, as it writes.
    """

    def __init__(
        self,
        sequences: Sequence[TokenSequence],
        *,
        begins: bool = False,
        out: Collection[int] = (),
    ) -> None:
        self.candidates: list[Span] = []
        self._sequences = sequences
        self._out = frozenset(out)
        self.active = {k: sequence for k, sequence in enumerate(sequences) if k not in out}
        self._begins = begins
        self._first_texts: dict[TokenSequence, str] = {}

    def read_by(self, sequence: TokenSequence) -> Program[None]:
        """Evaluate the candidates so far in a model's tree before it proposes (agreement first).

        This saves forwards and does not change what it proposes: scoring needs these nodes anyway,
        and writing the same ids finds them there. A text that it cannot encode is left to `score`,
        which raises unless the model proposes that text itself.
        """
        if sequence.engine.lazy:
            return
        nodes = [sequence.root]
        for candidate in self.candidates if not self._begins else ():
            with suppress(ContextFullError, ValueError):
                nodes += sequence.root.chain(self._ids(sequence, candidate))
        yield from evaluated(dict.fromkeys(nodes))

    def add(self, number: int, written: Iterable[Span], margins: tuple[float, ...] = ()) -> None:
        """Add what model `number` proposes; equal texts of several models are one candidate.

        `margins` are those that it read, one a word.
        """
        pooled = {self.key(candidate): candidate for candidate in self.candidates}
        for own in written:
            self._first_texts.setdefault(self._sequences[number], own.text)
            candidate = pooled.setdefault(self.key(own), own)
            if number not in candidate.margins:
                candidate.margins[number] = margins
                candidate.nodes.update(own.nodes)
        self.candidates = list(pooled.values())

    def has_room_for(self, candidate: Span) -> bool:
        """Whether every model that has yet to read the candidate has a context for it."""
        return all(
            sequence.root.depth + len(self._ids(sequence, candidate)) < sequence.engine.context
            for sequence in self.active.values()
            if sequence not in candidate.nodes
        )

    def score(self) -> Program[None]:
        """Have every model read the candidates that others wrote, and score all (eq. 4).

        All of it is one request. A model that is asked anyway also runs the last nodes of its own
        candidates: if one is committed, the next round's first distribution is there already.
        """
        request: list[Node] = []
        for sequence in self.active.values():
            foreign = [s for s in self.candidates if sequence not in s.nodes]
            if foreign and not sequence.engine.lazy:
                own = (s.nodes[sequence] for s in self.candidates if sequence in s.nodes)
                request.extend((sequence.root, *own))
            for candidate in foreign:
                chain = self._place(candidate, sequence)
                known = all(node.logprob is not None for node in chain)
                request.extend(() if known and sequence.engine.lazy else chain)
            for candidate in self.candidates:
                node = candidate.nodes[sequence]
                node.ends = node.ends or candidate.ends
                request.extend([node] if candidate.ends else ())
        yield from evaluated(dict.fromkeys(request))
        for candidate in self.candidates:
            candidate.score(self._sequences, self._out)

    def read(self, candidate: Span) -> Program[None]:
        """Have every model read a candidate that has its nodes, and score it."""
        nodes = [candidate.nodes[sequence] for sequence in self.active.values()]
        for node in nodes:
            node.ends = node.ends or candidate.ends
        yield from evaluated(dict.fromkeys(n for node in nodes for n in (*node.above(), node)))
        candidate.score(self._sequences, self._out)

    def join(self, candidate: Span) -> None:
        """Add a candidate that no model proposed, unless one did."""
        if self.key(candidate) not in map(self.key, self.candidates):
            self.candidates.append(candidate)

    def first_space(self, number: int) -> str:
        """Return the space with which a model begins an answer after its chat template, or none."""
        first = self._first_texts.get(self._sequences[number], "")
        return " " if self._begins and _without_space(first) != first else ""

    def weights(self, weights: Sequence[float]) -> list[float]:
        """Return w_k, 0 for the models that are out."""
        return [0.0 if k in self._out else weight for k, weight in enumerate(weights)]

    def leave(self, candidate: Span, sequences: Iterable[TokenSequence]) -> None:
        """Leave a candidate to the models that have not read it, until they are asked again."""
        for sequence in sequences:
            if sequence not in candidate.nodes:
                self._place(candidate, sequence)

    def _place(self, candidate: Span, sequence: TokenSequence) -> list[Node]:
        """Put a candidate that another model wrote into the tree of a model; return its nodes."""
        chain = sequence.root.chain(self._ids(sequence, candidate))
        candidate.nodes[sequence] = chain[-1] if chain else sequence.root
        return chain

    def key(self, candidate: Span) -> tuple[str, bool]:
        """Return what makes two candidates one: text, without a first space, and END."""
        text = _without_space(candidate.text) if self._begins else candidate.text
        return text, candidate.ends

    def _ids(self, sequence: TokenSequence, candidate: Span) -> tuple[int, ...]:
        """Return the ids by which a model reads a candidate that another one wrote."""
        text = candidate.text
        if self._begins and not (bare := _without_space(text))[:1].isspace():
            first = self._first_texts.get(sequence, text)
            text = bare if _without_space(first) == first else f" {bare}"
        return sequence.model.encode_span(text)

    def record(self, selected: Span | None, weights: Sequence[float] = ()) -> records.Round:
        """Return what the trace keeps of the round, whose winner is `selected`."""
        read = {k: margins for s in self.candidates for k, margins in s.margins.items()}
        return records.Round(
            tuple(candidate.record() for candidate in self.candidates),
            None if selected is None else self.candidates.index(selected),
            0 if selected is None else len(selected.text.split()),
            tuple(read.get(number, ()) for number in range(len(self._sequences))),
            tuple(weights),
        )


def _without_space(text: str) -> str:
    """Return a text without one leading space, unless it is all whitespace."""
    return text.removeprefix(" ") if text.strip() else text
