"""The token-tree engine: nothing that was computed is computed again (engine.md).

Committed tokens and the tree behind them keep their keys and values in a row of the cache; a
request feeds only new tokens, all rows in one forward, each token seeing the committed text and
its own ancestors. A commit moves the winner's slots next to the committed text.
"""

from collections.abc import Callable, Iterable
from functools import partial

import torch

from adafuse.engine.batch import Feed, batches
from adafuse.engine.cache import SlotCache
from adafuse.engine.distribution import Reducer
from adafuse.engine.forward import Forward
from adafuse.engine.graphs import Graphs, capturable
from adafuse.engine.node import Node, TokenSequence, to_run
from adafuse.models.language_model import LanguageModel


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
