"""Drafts: likely tokens that ride along in a forward, so that later forwards are not needed.

A forward of one token costs about as much as one of several, and what an example will ask for next
can mostly be guessed: what a model is about to write, what others have written already, what was
in the prompt. Such tokens are evaluated together with what was asked for. The tree keeps all of it,
so that a method finds there what was guessed right, and never learns of the rest: drafts change
what decoding costs, not a text (speculative decoding, arXiv 2211.17192). There are four kinds:

- `own`: a model's next greedy token;
- `others`: what the other models would write, as far as they have been asked;
- `copies`: what followed the same last tokens before, in a text of the run or in the prompt
  (prompt lookup, and arXiv 2408.08696);
- `ahead`: where every token is a round, one model, the leader, goes some tokens ahead in forwards
  of its own, as if it always won, and the others read all of them in one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from adafuse.decoding.round import Example
from adafuse.decoding.words import Draft
from adafuse.engine.node import ContextFullError, Node, Program, Request, TokenSequence
from adafuse.models.language_model import LanguageModel
from adafuse.tokenization.text import LONGEST_CONTEXT, UNFINISHED, encode_bytes

LEAST_SPARE = 4.0
"""Below this a batch is so large that its forwards cost what their tokens cost: no drafts."""
MOST_AHEAD = 16
"""The leader goes at most this many tokens ahead."""
LONGEST_COPY = 8
MATCHES = (4, 3, 2, 1)
"""How many last tokens must be the same as before, the longest match first."""
MOST_KEPT = 1 << 17
"""A lookup keeps what followed this many to twice as many runs of tokens: 27 MiB at most."""
LONG_AGO = 64
"""Of the tries of a lookup, those before the last so many count half and less."""
Following = dict[tuple[int, ...], int]
"""Which id follows a run of ids."""


def _note(following: Following, ids: Sequence[int], start: int, then: Sequence[int]) -> None:
    """Note that `then` follows, an id at a time, what is in `ids` before `start` and after."""
    for end, token in enumerate(then, start):
        for size in MATCHES:
            if size <= end:
                following[tuple(ids[end - size : end])] = token


class Lookup:
    """What a model writes after which tokens: in all texts of a run, and what was in a prompt.

    It counts how often that was right, by the length of the match, and tries what is worth it.
    """

    def __init__(self) -> None:
        self._written: Following = {}
        self._older: Following = {}
        self._rates = dict.fromkeys(MATCHES, (1.0, 1.0))

    def learn(self, sequence: TokenSequence, start: int) -> None:
        """Learn what the model would have written from position `start` on."""
        if len(self._written) > MOST_KEPT:
            self._written, self._older = {}, self._written
        then = sequence.likeliest[start - sequence.prompt_length :]
        _note(self._written, sequence.ids, start, then)

    def after(self, ids: Sequence[int], read: Following, worth: float) -> list[tuple[int, int]]:
        """Return what to try after `ids`, each id with the length of the match.

        They are as many as are all right with probability `worth`; `read` is of the prompt.
        """
        tables = (self._written, self._older, read)
        last, tried, likely = list(ids), list[tuple[int, int]](), 1.0
        while len(tried) < LONGEST_COPY:
            runs = ((size, tuple(last[-size:])) for size in MATCHES)
            found = ((t[run], size) for size, run in runs for t in tables if run in t)
            if (match := next(found, None)) is None:
                break
            right, wrong = self._rates[match[1]]
            likely *= right / (right + wrong)
            if likely < worth:
                self._rates[match[1]] = right + 0.02, wrong  # so that it is tried again at times
                break
            tried.append(match)
            last.append(match[0])
        return tried

    def count(self, node: Node, tried: Iterable[tuple[int, int]]) -> None:
        """Count which of the ids tried after a node the model would have written."""
        for token, size in tried:
            if node.next is None:
                break
            hit = node.next.greedy == token
            right, wrong = self._rates[size][0] + hit, self._rates[size][1] + (not hit)
            half = 0.5 if right + wrong > LONG_AGO else 1.0
            self._rates[size] = right * half, wrong * half
            if not hit or token not in node.children:
                break
            node = node.children[token]


@dataclass(eq=False)
class Guess:
    """What is guessed about one sequence."""

    sequence: TokenSequence
    lookup: Lookup
    _read: Following = field(default_factory=dict)
    _learned: int = 0
    _tried: tuple[Node, Sequence[tuple[int, int]]] | None = None
    _written: tuple[Node, tuple[int, ...], str] | None = None

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
        while node.next is not None and node.next.greedy not in self.sequence.model.end_ids:
            ids.append(node.next.greedy)
            child = node.children.get(ids[-1])
            if child is None or child.next is None:
                break
            node = child
        return node, tuple(ids)

    def copies(self, node: Node) -> list[Node]:
        """Return a chain of what followed the same tokens before."""
        self.learn()
        tried = self.lookup.after(node.last_ids(max(MATCHES)), self._read, self.worth)
        self._tried = node, tried
        return grown(node, [token for token, _ in tried])

    def learn(self) -> None:
        """Learn from what was committed and tried since the last time."""
        sequence = self.sequence
        if self._tried is not None:
            self.lookup.count(*self._tried)
        if not self._learned:
            self._learned = sequence.prompt_length
            _note(self._read, sequence.ids, 1, sequence.ids[1 : self._learned])
        self.lookup.learn(sequence, self._learned)
        self._tried, self._learned = None, len(sequence.ids)

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
    """Extends what the program of one example asks for by drafts of some kinds.

    `lookups` are of all examples of a run.
    """

    def __init__(
        self, example: Example, kinds: Sequence[Draft], lookups: Mapping[LanguageModel, Lookup]
    ) -> None:
        self._example = example
        self._lookups = lookups
        self._kinds = kinds
        self._guesses: dict[TokenSequence, Guess] = {}

    def run(self, program: Program[None]) -> Program[None]:
        """Run a program with drafts in its requests."""
        if any(sequence.engine.spare < LEAST_SPARE for sequence in self._example.sequences):
            yield from program
            return
        for requests in program:
            full = any(len(each.ids) >= each.engine.limit for each in self._example.sequences)
            if full or not (isinstance(requests, Sequence) and requests):
                yield requests  # a guess would be a forward of the whole text
                continue
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
        if "copies" in self._kinds:
            for guess in self._guesses.values():
                guess.learn()

    def _guess(self, sequence: TokenSequence) -> Guess:
        if sequence not in self._guesses:
            self._guesses[sequence] = Guess(sequence, self._lookups[sequence.model])
        return self._guesses[sequence]

    def _leader(self, nodes: dict[TokenSequence, list[Node]]) -> Guess | None:
        """Return who goes ahead if what is asked for is what follows the text, by other models.

        It is the one whose likeliest tokens were committed most often. Nobody knows before the
        first round.
        """
        if not (nodes and "ahead" in self._kinds and self._example.rounds):
            return None
        active = map(self._guess, self._example.active.values())
        leader = max(active, key=lambda guess: guess.sequence.rate)
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
        spare, others = leader.sequence.engine.spare, len(self._example.active) - 1
        rate = min(leader.sequence.rate, 0.999)

        def cost(n: int) -> float:
            return (n * (spare + 1) + others * (spare + n)) / (1 - rate**n)

        return min(range(1, MOST_AHEAD + 1), key=cost)

    def _extended(self, guess: Guess, nodes: list[Node]) -> list[Node]:
        """Return nodes of a sequence that are asked for, with drafts."""
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
            for sequence in self._example.active.values():
                if sequence is not guess.sequence and (written := self._likely(sequence)):
                    yield guess.reading(written)
        if "copies" in self._kinds:
            yield guess.copies(last)

    def _likely(self, sequence: TokenSequence) -> str:
        """Return what a model would write, as far as it is worth reading."""
        guess = self._guess(sequence)
        _, ids = guess.greedy()
        count = 0
        while count < len(ids) and guess.sequence.rate ** (count + 1) >= guess.worth:
            count += 1
        return guess.text(ids[:count]) if count else ""
