"""The tree engine: rows and slots of sequences and nodes, and what is read of their logits."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch

from adafuse.engine.forward import FORWARD_COST, Feed, Forward, SlotCache, Token, batches
from adafuse.engine.graphs import Graphs, capturable
from adafuse.engine.node import Engine, NextToken, Node, TokenSequence, to_run
from adafuse.models.language_model import LanguageModel
from adafuse.tokenization.prompts import WORTH_SHARING, common


class TreeEngine(Engine):
    """Runs one model for up to `rows` sequences at a time.

    `slots`, where it is known, is how many tokens a sequence and its tree may come to.
    """

    def __init__(self, model: LanguageModel, top: int, rows: int, slots: int = 0) -> None:
        super().__init__(model)
        self.top = top
        self.spare = FORWARD_COST[model.device.type] / rows
        layers = model.network.config.get_text_config().num_hidden_layers
        self._cache = SlotCache(layers, rows, slots)
        forward = Forward(model, self._cache)
        self._logits = Graphs(forward) if capturable(model) else forward
        self._free = list(range(rows))
        self._moves: dict[tuple[int, int], int] = {}
        self._prefix: list[int] = []

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    @torch.inference_mode()
    def share(self, prefix_ids: list[int], least: int = WORTH_SHARING) -> None:
        """Compute the keys and values of ids that prompts will begin with; they are copied then.

        They take the place of those before, unless fewer than `least` of them would be new.
        """
        if len(prefix_ids) - common(self._prefix, prefix_ids) < least:
            return
        sequence = self.open(prefix_ids)
        self.evaluate([sequence.root])
        self._cache.save(sequence.row, len(prefix_ids))
        self.close(sequence)
        self._prefix = list(prefix_ids)

    @torch.inference_mode()
    def open(self, prompt_ids: list[int]) -> TokenSequence:
        """Begin a sequence in a free row; what it shares with other prompts is copied there."""
        sequence = TokenSequence(self, prompt_ids, self._free.pop(0))
        # The last id of a prompt is never copied: what follows it is to be read.
        sequence.cached = common(self._prefix, prompt_ids[:-1])
        self._cache.restore(sequence.row, sequence.cached)
        return sequence

    @torch.inference_mode()
    def close(self, sequence: TokenSequence) -> None:
        """Free the row; its contents are zeroed because masked non-finite values still spread."""
        sequence.release()
        self._moves = {
            move: source for move, source in self._moves.items() if move[0] != sequence.row
        }
        self._cache.clear(sequence.row)
        self._free.append(sequence.row)

    def commit(self, node: Node) -> None:
        """Append the path to `node`; its keys and values move next to the committed text.

        Those of the nodes below it follow.
        """
        sequence = node.sequence
        start = len(sequence.ids)
        path = [step for step in sequence.commit(node) if step.slot is not None]
        below = [kept for kept in node.subtree() if kept is not node and kept.slot is not None]
        if sequence.cached == start:
            sequence.cached += len(path)
        sequence.used = len(sequence.ids) + len(below)
        targets = [*range(start, start + len(path)), *range(len(sequence.ids), sequence.used)]
        slots = [step.slot for step in path + below if step.slot is not None]
        # What belongs into a slot may itself still have to move there.
        sources = [self._moves.get((sequence.row, slot), slot) for slot in slots]
        for step, source, target in zip(path + below, sources, targets, strict=True):
            step.slot = target
            self._moves[sequence.row, target] = source

    def evaluate(self, nodes: Iterable[Node]) -> None:
        """Fill in the nodes: one forward for all rows, or more while prompts are fed."""
        self.start(nodes)()

    @torch.inference_mode()
    def start(self, nodes: Iterable[Node]) -> Callable[[], None]:
        """Do what `evaluate` does up to the wait for the device; the returned call waits."""
        by_sequence: dict[TokenSequence, list[Node]] = {}
        for node in to_run(nodes):
            by_sequence.setdefault(node.sequence, []).append(node)
        feeds = [feed(*pair) for pair in by_sequence.items()]
        moves = [(row, source, target) for (row, target), source in self._moves.items()]
        self._cache.move([move for move in moves if move[1] != move[2]])
        self._moves = {}
        # One slot more is where padding is written.
        self._cache.reserve(max((sequence.used + 1 for sequence in by_sequence), default=0))
        unread: list[Callable[[], None]] = []
        for batch in batches(feeds, self.model.device.type):
            if batch.follows:
                _call_all(unread)
            logits = self._logits(batch)
            if batch.nodes:
                unread.append(read_logits(self.model, self.top, batch.nodes, logits))
        return partial(_call_all, unread)


def _call_all(calls: list[Callable[[], None]]) -> None:
    while calls:
        calls.pop(0)()


def feed(sequence: TokenSequence, nodes: Iterable[Node]) -> Feed:
    """Return the tokens to run for `nodes`: committed ones not in the cache, then tree nodes.

    Tree nodes get their slots here.
    """
    committed = len(sequence.ids)
    uncached = range(sequence.cached, committed)
    tokens = [Token(sequence.ids[index], index, index, index + 1) for index in uncached]
    sequence.cached = committed
    sequence.forwards += 1
    for node in sorted(nodes, key=lambda node: node.depth):
        if node is sequence.root:  # among the tokens unless it is run again
            last = committed - 1
            tokens[-1:] = [Token(node.token, last, last, committed, (), node)]
            continue
        if node.slot is None:
            node.slot = sequence.used
            sequence.used += 1
        ancestors = tuple(step.slot for step in node.path() if step.slot is not None)
        tokens.append(Token(node.token, node.depth, node.slot, committed, ancestors, node))
    return Feed(sequence.row, tokens)


def read_logits(
    model: LanguageModel, top: int, nodes: Sequence[Node], logits: torch.Tensor
) -> Callable[[], None]:
    """Begin to fill in `next` of nodes, and `logprob` where that is unknown; the call waits for it.

    `logits` has shape [nodes, rows of the output layer]. They are reduced on the device, and one
    small tensor goes to the host: own log-probability, margin, log p(END), the `top` (at least 2)
    likeliest ids, exact in float64, and their log-probabilities.
    """
    logits = logits[:, : model.vocabulary].float()
    if model.unused_ids:
        logits[:, list(model.unused_ids)] = -math.inf
    vectors = logits.log_softmax(dim=-1)
    size = vectors.shape[1]
    ids, logprobs = largest(vectors, min(top, size))
    first, second = logprobs[:, :2].exp().unbind(dim=1)
    end = sorted(index for index in model.end_ids if index < size)
    log_end = vectors[:, end].logsumexp(dim=-1)
    numbers = torch.stack([_own_logprobs(nodes, vectors), first - second, log_end], dim=1)
    packed = torch.cat([numbers.double(), ids.double(), logprobs.double()], dim=1)
    return partial(_fill_in, nodes, vectors, packed)


def _own_logprobs(nodes: Sequence[Node], vectors: torch.Tensor) -> torch.Tensor:
    """Return log p(token | parent) per node, from the parent's vector wherever that is."""
    own = vectors.new_zeros(len(nodes))
    rows = {node: index for index, node in enumerate(nodes)}
    inside: list[tuple[int, int, int]] = []
    outside: dict[int, torch.Tensor] = {}
    for index, node in enumerate(nodes):
        if node.logprob is not None or node.parent is None:
            continue
        if node.parent in rows:
            inside.append((index, rows[node.parent], node.token))
        else:
            assert node.parent.next is not None, "asked for before its parent"
            outside[index] = node.parent.next.logprobs[node.token]
    if inside:
        indices, parents, tokens = zip(*inside, strict=True)
        own[list(indices)] = vectors[parents, tokens]
    if outside:
        own[list(outside)] = torch.stack(list(outside.values()))
    return own


def _fill_in(nodes: Sequence[Node], vectors: torch.Tensor, numbers: torch.Tensor) -> None:
    for node, vector, row in zip(nodes, vectors, numbers.tolist(), strict=True):
        own, margin, log_end, *top = row
        if node.logprob is None and node.parent is not None:
            node.logprob = own
        ids = tuple(map(int, top[: len(top) // 2]))
        node.next = NextToken(ids, tuple(top[len(ids) :]), margin, log_end, vector)


BLOCK = 256
"""Entries of a row of which `largest` asks for the maximum first."""


def largest(values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the indices and values of the `count` largest entries per row.

    Ties go to the lower index: torch.topk leaves their order open, and they are common in 16-bit
    logits. On a CPU, where a pass over a whole vocabulary takes long, only the `count` blocks of
    the largest maxima are looked at. None of the others can have one of the entries: each of these
    blocks has one before it, larger or as large with a lower index.
    """
    full = values.shape[1] - values.shape[1] % BLOCK
    if values.device.type != "cpu" or full < 4 * count * BLOCK:
        return _one_by_one(values, count)
    blocks = values[:, :full].view(len(values), -1, BLOCK).amax(dim=-1)
    chosen = _one_by_one(blocks, count)[0].sort(dim=1).values
    inside = (chosen[:, :, None] * BLOCK + torch.arange(BLOCK)).flatten(1)
    rest = torch.arange(full, values.shape[1]).expand(len(values), -1)
    indices = torch.cat([inside, rest], dim=1)
    found, best = _one_by_one(values.gather(1, indices), count)
    return indices.gather(1, found), best


def _one_by_one(values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Do what `largest` does with argmax, which is documented to return the first."""
    rest = values.clamp(min=torch.finfo(values.dtype).min)  # -inf is what was taken already
    indices = []
    for _ in range(count):
        indices.append(rest.argmax(dim=-1, keepdim=True))
        rest.scatter_(1, indices[-1], float("-inf"))
    chosen = torch.cat(indices, dim=1)
    return chosen, values.gather(1, chosen)
