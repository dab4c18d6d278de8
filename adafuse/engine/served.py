"""The engine of a model on a server: each chain of nodes is a request."""

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import partial

import torch

from adafuse.engine.node import Engine, NextToken, Node, Pending, TokenSequence
from adafuse.models.language_model import ServedModel
from adafuse.servers.server import Ask, Step

AHEAD, MOST_AHEAD = 7, 64
"""The fewest and the most ids that a request goes on beyond what is asked."""
LIKELY = 0.5
"""It goes on while all of these ids are committed with this probability."""
NO_ROW = torch.empty(0)
END_UNKNOWN, ROUNDING = 1e-4, 1e-6
"""p(END) is read off the likeliest ids where end ids that are not among them can add no more than
this share of it. All probabilities add up to 1, but for rounding."""


class ServedEngine(Engine):
    """Asks a server; what it writes beyond what was asked stays in the tree.

    Whole distributions do not come over the network: `NextToken.logprobs` is empty.
    """

    model: ServedModel
    lazy = True

    def __init__(self, model: ServedModel, top: int) -> None:
        super().__init__(model)
        self.top = top
        self._users = [0] * model.server.slots

    def open(self, prompt_ids: list[int]) -> TokenSequence:
        """Begin a sequence, in a slot of the server that fewest others have."""
        slot = self._users.index(min(self._users))
        self._users[slot] += 1
        return TokenSequence(self, prompt_ids, slot)

    def close(self, sequence: TokenSequence) -> None:
        """End a sequence; the server keeps its prefix until it needs the room."""
        sequence.release()
        self._users[sequence.row] -= 1

    def evaluate(self, nodes: Iterable[Node]) -> None:
        """Send all requests, and wait for all answers."""
        for pending in self.begin(nodes):
            pending.finish()

    def begin(self, nodes: Iterable[Node]) -> list[Pending]:
        """Send one request for each chain of nodes."""
        missing = [node for node in dict.fromkeys(nodes) if node.missing]
        return [self._begin(node) for node in _leaves(missing)]

    def _begin(self, leaf: Node) -> Pending:
        """Ask for the path to a node from the first of its nodes on that is not evaluated."""
        path = [leaf.sequence.root, *leaf.path()]
        first = next((n for n, node in enumerate(path) if node.next is None), len(path) - 1)
        if path[first].logprob is None and first:
            first -= 1
        sequence, asked = leaf.sequence, path[first:]
        ask = Ask(
            (*sequence.ids, *(node.token for node in path[1 : first + 1])),
            tuple(node.token for node in asked[1:]),
            min(_ahead(sequence.rate), self.context - 1 - leaf.depth),
            leaf.ends,
            sequence.stop,
            sequence.row,
        )
        answer: Future[list[Step]] = self.model.server.begin(ask, self.top)
        return Pending(answer, partial(self._fill, asked))

    def _fill(self, asked: Sequence[Node], steps: Sequence[Step]) -> None:
        """Put what a server wrote into the tree: what was asked, and as far as it went on."""
        asked[0].sequence.count(range(asked[0].depth, asked[0].depth + len(steps)))
        node, forced = asked[0], [node.token for node in asked[1:]]
        for n, step in enumerate(steps):
            if node.next is None:
                node.next = self._next(step)
            if step.log_end is not None:
                node.next.log_end, node.next.end_known = step.log_end, True
            more = n < len(forced) or (n + 1 < len(steps) and self._goes_on(node.next, step))
            if not more or node.depth + 1 >= self.context:
                break
            node = node.child(step.written)
            node.logprob = step.logprob if node.logprob is None else node.logprob

    def _goes_on(self, following: NextToken, step: Step) -> bool:
        """Whether the server wrote what decoding would; of equally likely ids, it may not."""
        return step.written == following.greedy and step.written not in self.model.end_ids

    def _next(self, step: Step) -> NextToken:
        model = self.model
        used = [(n, v) for n, v in step.top if n < model.vocabulary and n not in model.unused_ids]
        ids, logprobs = zip(*used, strict=True)
        probabilities = [*map(math.exp, logprobs)]
        ends = [p for index, p in zip(ids, probabilities, strict=True) if index in model.end_ids]
        end = math.fsum(ends)
        rest = max(0.0, 1 - math.fsum(probabilities)) + ROUNDING
        others = min(rest, (len(model.end_ids) - len(ends)) * probabilities[-1])
        return NextToken(
            ids,
            logprobs,
            margin=probabilities[0] - probabilities[1],
            log_end=math.log(end) if end else -math.inf,
            logprobs=NO_ROW,
            end_known=others <= END_UNKNOWN * end,
        )


def _ahead(rate: float) -> int:
    """Return how far to go on where a model is right in this share of its tokens."""
    return min(max(AHEAD, int(math.log(LIKELY) / math.log(rate))), MOST_AHEAD)


def _leaves(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes whose paths have all of them, and those that p(END) is asked after."""
    above = {node for leaf in nodes for node in leaf.above()}
    return [node for node in nodes if node not in above or node.ends]
