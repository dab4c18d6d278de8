"""From logits to what decoding reads: masking, float32 softmax, top ids, margin, p(END)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from adafuse.engine.forward import Feed, Forward, SlotCache, batches
from adafuse.engine.graphs import Graphs, capturable
from adafuse.engine.node import NextToken, Node, TokenSequence, to_run
from adafuse.models.language_model import LanguageModel


@dataclass(frozen=True)
class Reducer:
    """Reduces the logits of one model on its device; one small tensor goes to the host.

    `top` is how many of the likeliest ids a method reads (at least 2, for the margin).
    """

    model: LanguageModel
    top: int

    def fill(self, nodes: Sequence[Node], logits: torch.Tensor) -> None:
        """Give every node its distribution, and its own log-probability where it is unknown.

        `logits` has shape [nodes, rows of the output layer].
        """
        self.start(nodes, logits)()

    def start(self, nodes: Sequence[Node], logits: torch.Tensor) -> Callable[[], None]:
        """Do what `fill` does on the device; the call that is returned waits for it."""
        vectors = self.log_softmax(logits)
        return partial(self._assign, nodes, vectors, self._numbers(nodes, vectors))

    def _assign(self, nodes: Sequence[Node], vectors: torch.Tensor, packed: torch.Tensor) -> None:
        numbers = packed.tolist()
        top = min(self.top, vectors.shape[1])
        for node, vector, row in zip(nodes, vectors, numbers, strict=True):
            own, margin, log_end, *rest = row
            if node.logprob is None and node.parent is not None:
                node.logprob = own
            ids = tuple(int(index) for index in rest[:top])
            node.next = NextToken(ids, tuple(rest[top:]), margin, log_end, vector)

    def log_softmax(self, logits: torch.Tensor) -> torch.Tensor:
        """Return float32 log-probabilities over the ids below len(tokenizer)."""
        return logits[:, : self.model.vocabulary].float().log_softmax(dim=-1)

    def _numbers(self, nodes: Sequence[Node], vectors: torch.Tensor) -> torch.Tensor:
        """Pack own log-probability, margin, log p(END), top ids and theirs: [nodes, 3 + 2 top].

        Ids stay exact in float64.
        """
        ids, logprobs = largest(vectors, min(self.top, vectors.shape[1]))
        first_two = logprobs[:, :2].exp()
        margin = first_two[:, 0] - first_two[:, 1] if ids.shape[1] > 1 else first_two[:, 0]
        end = sorted(index for index in self.model.end_ids if index < vectors.shape[1])
        log_end = vectors[:, end].logsumexp(dim=-1)
        own = self._own_logprobs(nodes, vectors)
        columns = [own[:, None], margin[:, None], log_end[:, None], ids, logprobs]
        return torch.cat([column.double() for column in columns], dim=1)

    def _own_logprobs(self, nodes: Sequence[Node], vectors: torch.Tensor) -> torch.Tensor:
        """Return log p(token | parent) per node, from the parent's vector wherever that is."""
        own = vectors.new_zeros(len(nodes))
        place = {id(node): index for index, node in enumerate(nodes)}
        unknown = [index for index, node in enumerate(nodes) if _needs_logprob(node)]
        inside = [index for index in unknown if id(nodes[index].parent) in place]
        outside = [index for index in unknown if id(nodes[index].parent) not in place]
        if inside:
            parents = [place[id(nodes[index].parent)] for index in inside]
            own[inside] = vectors[parents, [nodes[index].token for index in inside]]
        if outside:
            own[outside] = torch.stack([_under_known_parent(nodes[index]) for index in outside])
        return own


def largest(values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the indices and values of the `count` largest entries per row.

    Ties go to the lower index: torch.topk leaves their order open, they are common in 16-bit
    logits, and argmax is documented to return the first.
    """
    rest = values.clone()
    indices = []
    for _ in range(count):
        index = rest.argmax(dim=-1, keepdim=True)
        indices.append(index)
        rest.scatter_(1, index, float("-inf"))
    chosen = torch.cat(indices, dim=1)
    return chosen, values.gather(1, chosen)


def _needs_logprob(node: Node) -> bool:
    return node.logprob is None and node.parent is not None


def _under_known_parent(node: Node) -> torch.Tensor:
    assert node.parent is not None and node.parent.next is not None, "asked for before its parent"
    return node.parent.next.logprobs[node.token]


class TreeEngine:
    """Runs one model for up to `rows` sequences at a time.

    `slots`, where it is known, is how many tokens a sequence and its tree may come to.
    """

    def __init__(self, model: LanguageModel, top: int, rows: int, slots: int = 0) -> None:
        self.model = model
        self.context = model.context
        self._reducer = Reducer(model, top)
        layers = model.network.config.get_text_config().num_hidden_layers
        self._cache = SlotCache(layers, rows, slots)
        forward = Forward(model, self._cache)
        self._logits = Graphs(forward) if capturable(model) else forward
        self._free = list(range(rows))
        self._moves: dict[int, list[tuple[int, int]]] = {}
        self._prefix: list[int] = []

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    @torch.inference_mode()
    def share(self, prefix_ids: list[int]) -> None:
        """Compute the keys and values of ids that prompts will begin with; they are copied then."""
        sequence = self.open(prefix_ids)
        self.evaluate([sequence.root])
        self._cache.save(sequence.row, len(prefix_ids))
        self.close(sequence)
        self._prefix = list(prefix_ids)

    @torch.inference_mode()
    def open(self, prompt_ids: list[int]) -> TokenSequence:
        """Begin a sequence in a free row; what it shares with other prompts is copied there."""
        sequence = TokenSequence(self, prompt_ids, self._free.pop(0))
        size = len(self._prefix)
        if 0 < size < len(prompt_ids) and prompt_ids[:size] == self._prefix:
            self._cache.restore(sequence.row)
            sequence.cached = size
        return sequence

    @torch.inference_mode()
    def close(self, sequence: TokenSequence) -> None:
        """Free the row; its contents are zeroed because masked non-finite values still spread."""
        sequence.forget()
        self._moves.pop(sequence.row, None)
        self._cache.clear(sequence.row)
        self._free.append(sequence.row)

    def commit(self, node: Node) -> None:
        """Append the path to `node`; its keys and values move next to the committed text."""
        sequence = node.sequence
        start = len(sequence.ids)
        path = sequence.commit(node)
        slots = [step.slot for step in path if step.slot is not None]
        moves = [(slot, start + place) for place, slot in enumerate(slots) if slot != start + place]
        self._moves.setdefault(sequence.row, []).extend(moves)
        sequence.cached = start + len(slots) if sequence.cached == start else sequence.cached
        sequence.used = len(sequence.ids)

    def evaluate(self, nodes: Iterable[Node]) -> None:
        """Fill in the nodes: one forward for all rows, or more while prompts are fed."""
        self.start(nodes)()

    @torch.inference_mode()
    def start(self, nodes: Iterable[Node]) -> Callable[[], None]:
        """Do what `evaluate` does up to the wait for the device; the returned call waits."""
        wanted: dict[TokenSequence, list[Node]] = {}
        for node in to_run(nodes):
            wanted.setdefault(node.sequence, []).append(node)
        feeds = [Feed.of(sequence, asked) for sequence, asked in wanted.items()]
        self._apply_moves()
        self._cache.reserve(max((feed.slots for feed in feeds), default=0))
        for feed in feeds:
            feed.sequence.forwards += 1
        unread: list[Callable[[], None]] = []
        for batch in batches(feeds, self.model.device.type):
            if batch.follows:
                _call_all(unread)
            logits = self._logits(batch)
            if batch.nodes:
                unread.append(self._reducer.start(batch.nodes, logits))
        return partial(_call_all, unread)

    def _apply_moves(self) -> None:
        moves = [(row, *move) for row, pairs in self._moves.items() for move in pairs]
        self._moves.clear()
        if moves:
            self._cache.move(moves)


def _call_all(calls: list[Callable[[], None]]) -> None:
    while calls:
        calls.pop(0)()
