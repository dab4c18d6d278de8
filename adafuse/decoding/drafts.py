"""Drafts: likely tokens that ride along in a forward, so that later forwards are not needed.

A forward of one token costs about as much as one of several, and what an example will ask for next
can mostly be guessed: what a model is about to write, what others have written already, what was
in the prompt. Such tokens are evaluated together with what was asked for. The tree keeps all of it,
so that a method finds there what was guessed right, and never learns of the rest: drafts change
what decoding costs, not a text (speculative decoding, arXiv 2211.17192). There are four kinds:

- `own`: a model's next greedy token;
- `others`: what the other models would write, as far as they have been asked;
- `copies`: what followed the same tokens before (prompt lookup);
- `ahead`: where every token is a round, one model, the leader, goes some tokens ahead in forwards
  of its own, as if it always won, and the others read all of them in one.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product

from adafuse.decoding.round import Example
from adafuse.decoding.words import Draft
from adafuse.engine.node import ContextFullError, Node, Program, Request, TokenSequence
from adafuse.tokenization.text import LONGEST_CONTEXT, UNFINISHED, encode_bytes

LEAST_SPARE = 2.0
"""Below this a batch is so large that its forwards cost what their tokens cost."""
MOST_AHEAD = 16
"""The leader goes at most this many tokens ahead."""
LONGEST_COPY = 8
MATCHES = (3, 2)
"""How many tokens must be the same as before, the longer match first."""
PRIOR = (2, 3)
"""A model is taken to be right in 2 of 3 tokens, until more is known."""


class Lookup:
    """Finds what followed the last tokens of a sequence where they were before.

    It counts how often that was what the model wrote, and tries as much as is worth it.
    """

    def __init__(self) -> None:
        self._ends: dict[tuple[int, ...], int] = {}
        self._known = max(MATCHES)
        self._tried: tuple[Node, tuple[int, ...]] | None = None
        self._right = self._wrong = 1.0

    def after(self, node: Node, worth: float) -> tuple[int, ...]:
        """Return the ids to try after a node: as many as are all right with probability `worth`."""
        self._count()
        start = self._before(node)
        if start is None:
            return ()
        rate = self._right / (self._right + self._wrong)
        self._right += 0.02 * (rate < worth)  # so that it is tried again at times
        size = 0
        while size < LONGEST_COPY and rate ** (size + 1) >= worth:
            size += 1
        ids = tuple(node.sequence.ids[start : start + size])
        self._tried = node, ids
        return ids

    def _before(self, node: Node) -> int | None:
        """Return where what followed the same tokens the last time begins."""
        ids = node.sequence.ids
        for end, size in product(range(self._known, len(ids)), MATCHES):
            self._ends[tuple(ids[end - size : end])] = end
        self._known = max(self._known, len(ids))
        last = node.last_ids(max(MATCHES))
        ends = (self._ends.get(tuple(last[-size:])) for size in MATCHES)
        return next((end for end in ends if end is not None), None)

    def _count(self) -> None:
        """Count which ids of the last try the model would have written; older tries count less."""
        node, ids = self._tried or (None, ())
        self._tried = None
        for token in ids:
            if node is None or node.next is None:
                break
            right = node.next.greedy == token
            self._right, self._wrong = self._right + right, self._wrong + (not right)
            node = node.children.get(token) if right else None
        if self._right + self._wrong > 16:
            self._right, self._wrong = self._right / 2, self._wrong / 2


@dataclass(eq=False)
class Guess:
    """What is guessed about one sequence."""

    sequence: TokenSequence
    lookup: Lookup = field(default_factory=Lookup)
    _written: tuple[Node, tuple[int, ...], str] | None = None

    @property
    def rate(self) -> float:
        """How often what is committed is what the model would have written."""
        kept, lost = self.sequence.kept, self.sequence.lost
        return (kept + PRIOR[0]) / (kept + lost + PRIOR[1])

    @property
    def worth(self) -> float:
        """How likely a draft must be; its token counts twice, because it pads other sequences."""
        return 2 / (2 + self.sequence.engine.spare)

    def greedy(self) -> tuple[Node, tuple[int, ...]]:
        """Follow the likeliest tokens from the end of the text.

        Return the last evaluated node, and the ids up to it with the one that comes next, if it
        does not end the text.
        """
        node, ids = self.sequence.tip, list[int]()
        while node.next is not None and node.next.greedy not in self.sequence.model.stop_ids:
            ids.append(node.next.greedy)
            child = node.children.get(ids[-1])
            if child is None or child.next is None:
                break
            node = child
        return node, tuple(ids)

    def text(self, ids: tuple[int, ...]) -> str:
        """Return the text of ids after the end of the text, without a character half written."""
        tip = self.sequence.tip
        if self._written is None or self._written[:2] != (tip, ids):
            anchor = self.sequence.model.anchor(tip.last_ids(LONGEST_CONTEXT))
            self._written = tip, ids, anchor.added(ids).rstrip(UNFINISHED)
        return self._written[2]

    def reading(self, text: str) -> list[Node]:
        """Return the nodes by which the model reads a text after the end of the text."""
        model, pending = self.sequence.model, self.sequence.pending
        try:
            if pending:
                ids = encode_bytes(model, pending + text.encode())
            else:
                words = re.findall(r"\s*\S+|\s+$", text)
                ids = tuple(token for word in words for token in model.encode_span(word))
        except ValueError:  # a tokenizer that cannot write it
            return []
        return grown(self.sequence.root, ids)


def grown(node: Node, ids: Iterable[int]) -> list[Node]:
    """Return a chain of tokens under a node, as far as the model's context goes."""
    nodes: list[Node] = []
    with suppress(ContextFullError):
        for token in ids:
            nodes.append((nodes[-1] if nodes else node).child(token))
    return nodes


class Drafter:
    """Extends what the program of one example asks for by drafts of some kinds."""

    def __init__(self, example: Example, kinds: Sequence[Draft]) -> None:
        self._example = example
        self._kinds = kinds
        self._guesses: dict[TokenSequence, Guess] = {}

    def run(self, program: Program[None]) -> Program[None]:
        """Run a program with drafts in its requests."""
        for requests in program:
            nodes: dict[TokenSequence, list[Node]] = {}
            more: list[Request] = []
            for request in requests:
                if isinstance(request, Node):
                    nodes.setdefault(request.sequence, []).append(request)
                else:
                    more.append(request)
            leader = self._leader(nodes)
            if leader is not None:
                if own := nodes.pop(leader.sequence, None):
                    yield self._extended(leader, own)
                yield from self._ahead(leader)
            for sequence, own in nodes.items():
                more += self._extended(self._guess(sequence), own)
            if more:
                yield more

    def _guess(self, sequence: TokenSequence) -> Guess:
        if sequence not in self._guesses:
            self._guesses[sequence] = Guess(sequence)
        return self._guesses[sequence]

    def _leader(self, nodes: dict[TokenSequence, list[Node]]) -> Guess | None:
        """Return who goes ahead if what is asked for is what follows the text, by other models.

        It is the one whose likeliest tokens were committed most often. Nobody knows before the
        first round.
        """
        asked = list(self._example.asked.values())
        fitting = all(sequence.engine.spare >= LEAST_SPARE for sequence in asked)
        if not (nodes and fitting and "ahead" in self._kinds and self._example.rounds):
            return None
        leader = max(map(self._guess, asked), key=lambda guess: guess.rate)
        others = any(sequence is not leader.sequence for sequence in nodes)
        return leader if others and all(s.tip in own for s, own in nodes.items()) else None

    def _ahead(self, leader: Guess) -> Program[None]:
        """Let the leader write on, unless the text would end."""
        sequence, limits = leader.sequence, self._example.limits
        depth = min(self._depth(leader), limits.max_new_tokens - sequence.generated)
        while True:
            node, ids = leader.greedy()
            if not ids or node.depth - sequence.tip.depth >= depth:
                return
            if self._example.stops_after.within(leader.text(ids)):
                return
            leaf = [node for node in grown(node, ids[-1:]) if node.next is None]
            if not leaf:
                return
            yield self._extended(leader, leaf)

    def _depth(self, leader: Guess) -> int:
        """Return how many tokens ahead cost least for each token that is right."""
        spare, others = leader.sequence.engine.spare, len(self._example.asked) - 1
        rate = min(leader.rate, 0.999)

        def cost(n: int) -> float:
            return (n * (spare + 1) + others * (spare + n)) / (1 - rate**n)

        return min(range(1, MOST_AHEAD + 1), key=cost)

    def _extended(self, guess: Guess, nodes: list[Node]) -> list[Node]:
        """Return nodes of a sequence that are asked for, with drafts."""
        if guess.sequence.engine.spare < LEAST_SPARE:
            return nodes
        drafts = [node for chain in self._chains(guess, nodes) for node in chain]
        return [node for node in dict.fromkeys([*nodes, *drafts]) if node.next is None]

    def _chains(self, guess: Guess, nodes: list[Node]) -> Iterator[list[Node]]:
        last = max(nodes, key=lambda node: node.depth)
        if "own" in self._kinds:
            node, ids = guess.greedy()
            own = grown(node, ids[-1:])
            yield own
            last = max([last, *own], key=lambda node: node.depth)
        if "others" in self._kinds:
            for sequence in self._example.asked.values():
                if sequence is not guess.sequence and (written := self._likely(sequence)):
                    yield guess.reading(written)
        if "copies" in self._kinds:
            yield grown(last, guess.lookup.after(last, guess.worth))

    def _likely(self, sequence: TokenSequence) -> str:
        """Return what a model would write, as far as it is worth reading."""
        guess = self._guess(sequence)
        _, ids = guess.greedy()
        count = 0
        while count < len(ids) and guess.rate ** (count + 1) >= guess.worth:
            count += 1
        return guess.text(ids[:count]) if count else ""
