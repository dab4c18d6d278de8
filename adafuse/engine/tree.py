"""The tree engine: rows and slots of sequences and nodes."""

import logging
import math
from collections.abc import Callable, Iterable
from functools import partial

import torch

from adafuse.engine.forward import (
    FORWARD_COST,
    Feed,
    Forward,
    SlotCache,
    Token,
    batches,
    read_logits,
)
from adafuse.engine.graphs import Graphs, capturable
from adafuse.engine.node import Engine, Node, TokenSequence, to_run
from adafuse.engine.reference import ReferenceEngine
from adafuse.models.language_model import LoadedModel
from adafuse.models.memory import out_of_memory
from adafuse.models.positions import RopeLengths, constant_scales, forget_lengths
from adafuse.tokenization.prompts import WORTH_SHARING, common

logger = logging.getLogger(__name__)


class CachedEngine(Engine):
    """Runs one model for many sequences, and keeps what the network has read.

    Nodes beyond the length from which rotary factors or scales depend on it go to the reference
    engine. So do all once a forward failed, as what that left in the cache is unknown; a `strict`
    engine raises then.
    """

    model: LoadedModel

    def __init__(self, model: LoadedModel, top: int, *, strict: bool) -> None:
        super().__init__(model)
        self.top = top
        self._strict = strict
        self._reference = ReferenceEngine(model, top)
        rope = RopeLengths.of(model.network.config)
        self.limit = min(rope.border, constant_scales(model.network.config))
        self._rope_varies = rope.vary

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.device

    def evaluate(self, nodes: Iterable[Node]) -> None:
        """Fill in the nodes."""
        self.start(nodes)()

    @torch.inference_mode()
    def start(self, nodes: Iterable[Node]) -> Callable[[], None]:
        """Do what `evaluate` does up to the wait for the device; the returned call waits."""
        missing, finish = to_run(nodes), nothing
        try:
            if self._rope_varies:
                forget_lengths(self.model.network)
            near = [node for node in missing if node.depth < self.limit]
            finish = partial(self._isolating, self._start(near), near)
        except Exception as error:  # a network may raise anything, for a batch or for one text
            if self._strict or out_of_memory(error):
                raise
            self.limit, self.spare = 0, 0.0
            logger.warning(
                "%s failed in a batch (%s); the slower reference engine runs it from now on",
                self.model.name,
                error,
            )
        if beyond := [node for node in missing if node.depth >= self.limit]:
            finish()
            self._reference.top = self.top
            self._reference.evaluate(beyond)
            return nothing
        return finish

    @torch.inference_mode()
    def _isolating(self, finish: Callable[[], None], nodes: list[Node]) -> None:
        """Wait; run nodes that are not numbers alone: another branch of their row may be why."""
        finish()
        odd = [node for node in nodes if node.next and math.isnan(node.next.margin)]
        if not odd or self._strict:
            return
        for node in odd:
            node.next = None
        self._reference.top = self.top
        self._reference.evaluate(odd)
        for node in odd:
            for child in node.children.values():
                assert node.next is not None
                child.logprob = float(node.next.logprobs[child.token])

    def _start(self, nodes: list[Node]) -> Callable[[], None]:
        """Run the nodes; the returned call fills them in."""
        raise NotImplementedError


class TreeEngine(CachedEngine):
    """Runs one model for up to `rows` sequences at a time.

    `slots`, where it is known, is how many tokens a sequence and its tree may come to.
    """

    def __init__(
        self,
        model: LoadedModel,
        top: int,
        rows: int,
        slots: int = 0,
        *,
        strict: bool = False,
    ) -> None:
        super().__init__(model, top, strict=strict)
        self.spare = FORWARD_COST[model.device.type] / rows
        layers = model.network.config.get_text_config().num_hidden_layers
        self._cache = SlotCache(layers, rows, slots)
        forward = Forward(model, self._cache)
        self._logits = Graphs(forward) if capturable(model) else forward
        self._free = list(range(rows))
        self._moves: dict[tuple[int, int], int] = {}
        self._prefix: list[int] = []

    @torch.inference_mode()
    def share(self, prefix_ids: list[int], least: int = WORTH_SHARING) -> None:
        """Compute the keys and values of ids that prompts will begin with; they are copied then.

        They take the place of those before, unless fewer than `least` of them would be new.
        """
        prefix_ids = prefix_ids[: self.limit]
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
        self._moves = {to: slot for to, slot in self._moves.items() if to[0] != sequence.row}
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

    def _start(self, nodes: list[Node]) -> Callable[[], None]:
        """Run one forward for all rows, or more while prompts are fed."""
        by_sequence: dict[TokenSequence, list[Node]] = {}
        for node in nodes:
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


def nothing() -> None:
    """Wait for nothing."""


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
    sequence.count(token.position for token in tokens)
    return Feed(sequence.row, tokens)
