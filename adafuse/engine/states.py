"""The engine of networks whose layers keep states, such as linear attention and convolutions.

A state holds all that was read and cannot be taken back by a token, so every chain of nodes is
evaluated on a copy of what the network kept of the text before it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, NamedTuple

import torch
from transformers import DynamicCache, PreTrainedModel

from adafuse.engine.forward import PIECE, TOKEN_BUDGET, read_logits
from adafuse.engine.node import Node, TokenSequence, leaves
from adafuse.engine.past import CacheLayout, Past
from adafuse.engine.tree import CachedEngine, nothing
from adafuse.models.language_model import LoadedModel
from adafuse.tokenization.prompts import WORTH_SHARING, common

_CACHES = ("past_key_values", "cache_params", "state")
"""What networks call the cache that they take and return."""
MOST_KEPT = 16
"""Nodes of an example after which the network's states are kept; the oldest are forgotten first."""
COPIES = 3
"""Of what is kept of a text, while it is read on: itself, a network's copy, and what that makes."""


class Reading(NamedTuple):
    """How a network goes on from what it keeps: with at least, and at most, so many ids at a time.

    `ragged`: texts of different lengths can go together.
    """

    least: int = 1
    most: int = PIECE
    ragged: bool = True


_SIZES = ((1, PIECE), (2, PIECE), (1, 1))
READINGS = tuple(Reading(*sizes, ragged) for sizes in _SIZES for ragged in (True, False))
"""Ways of reading, the fastest first: a model takes the first with which it is exact."""


@dataclass(slots=True)
class _Chain:
    """Ids to read after `past` (None: from the beginning), and the node of each, if it has one."""

    past: Past | None
    ids: list[int]
    nodes: list[Node | None]


class StateEngine(CachedEngine):
    """Runs one model on the cache that the network itself makes, one row for each chain of nodes.

    `layout` says how to take that apart.
    """

    def __init__(
        self,
        model: LoadedModel,
        top: int,
        layout: CacheLayout,
        reading: Reading = READINGS[0],
        *,
        strict: bool = False,
    ) -> None:
        super().__init__(model, top, strict=strict)
        self._layout = layout
        self._reading = reading
        self._pasts: dict[TokenSequence, Past] = {}
        self._kept: dict[TokenSequence, dict[Node, Past]] = {}
        self._prefix: list[int] = []
        self._of_prefix: Past | None = None

    @torch.inference_mode()
    def share(self, prefix_ids: list[int], least: int = WORTH_SHARING) -> None:
        """Read ids that prompts will begin with; those that do go on from there.

        They take the place of those before, unless fewer than `least` of them would be new.
        """
        prefix_ids = prefix_ids[: self.limit]
        new = len(prefix_ids) - common(self._prefix, prefix_ids)
        if new < least or self._reading.most == 1:
            return
        sequence = self.open(prefix_ids)
        self.evaluate([sequence.root])
        self._prefix, self._of_prefix = list(prefix_ids), self._pasts[sequence]
        self.close(sequence)

    def open(self, prompt_ids: list[int]) -> TokenSequence:
        """Begin a sequence after a prompt."""
        sequence = super().open(prompt_ids)
        self._kept[sequence] = {}
        return sequence

    def close(self, sequence: TokenSequence) -> None:
        """End a sequence, and forget what the network kept of it."""
        super().close(sequence)
        self._kept.pop(sequence, None)
        self._pasts.pop(sequence, None)

    @torch.inference_mode()
    def commit(self, node: Node) -> None:
        """Append the path to `node`; what was kept after its last node is that of the text."""
        sequence, kept = node.sequence, self._kept[node.sequence]
        if last := next((each for each in reversed(node.path()) if each in kept), None):
            self._pasts[sequence] = self._layout.flattened(kept[last])
        below = {*node.subtree()} - {node}
        self._kept[sequence] = {each: past for each, past in kept.items() if each in below}
        super().commit(node)

    def _start(self, nodes: list[Node]) -> Callable[[], None]:
        """Read each chain on a copy of what was kept before it; equally long ones go together."""
        wanted = {*nodes}
        chains = [self._chain(leaf, wanted) for leaf in leaves(nodes)]
        finish: Callable[[], None] = nothing
        while chains:
            for count, group in self._groups(chains):
                finish()
                finish = self._read(group, count, wanted)
            chains = [chain for chain in chains if chain.ids]
        return finish

    def _chain(self, leaf: Node, wanted: set[Node]) -> _Chain:
        """Return the chain that ends with a node, after the last one that needs not be read."""
        sequence, path = leaf.sequence, [leaf.sequence.root, *leaf.path()]
        kept = self._kept[sequence]
        first = next(n for n, node in enumerate(path) if node in wanted)
        past = next((kept[node] for node in reversed(path[:first]) if node in kept), None)
        past = past or self._before(sequence, len(sequence.ids) - (not first))
        start = past.length if past else 0
        ids = (sequence.ids + [node.token for node in path[1:]])[start:]
        sequence.count(range(start, start + len(ids)))
        nodes = [*[None] * (len(ids) - len(path)), *path[-len(ids) :]]
        return _Chain(past, ids, nodes)

    def _before(self, sequence: TokenSequence, most: int) -> Past | None:
        """Return what is kept of at most so many of the ids of a text."""
        past = self._pasts.get(sequence)
        if past is not None and past.length <= most:
            return past
        size = len(self._prefix)
        return self._of_prefix if size <= most and sequence.ids[:size] == self._prefix else None

    def _groups(self, chains: Iterable[_Chain]) -> Iterator[tuple[int, list[_Chain]]]:
        """Yield chains that can go together, and how many of their ids do."""
        groups = defaultdict[tuple[int, int], list[_Chain]](list)
        for chain in chains:
            least, most, ragged = self._reading
            fresh, size = chain.past is None, len(chain.ids)
            count = size if fresh and most == 1 else max(least, min(size, most))
            length = -1 if chain.past is None else 0 if ragged else chain.past.length
            groups[count, length].append(chain)
        for (count, _), group in groups.items():
            rows = max(1, TOKEN_BUDGET // count)
            for first in range(0, len(group), rows):
                yield count, group[first : first + rows]

    def _read(self, chains: Sequence[_Chain], count: int, wanted: set[Node]) -> Callable[[], None]:
        """Read `count` ids of each chain; the returned call fills in the nodes that are wanted."""
        # A network that cannot read one id alone reads it twice, and what it keeps is not used.
        ids = [[*chain.ids, *chain.ids][:count] for chain in chains]
        nodes, cells = list[Node](), list[tuple[int, int]]()
        for row, chain in enumerate(chains):
            for column, node in enumerate(chain.nodes[:count]):
                if node in wanted:
                    wanted.discard(node)
                    nodes.append(node)
                    cells.append((row, column - count))
        keep = -min((column for _, column in cells), default=-1)
        pasts = [chain.past for chain in chains if chain.past]
        before = [past.length for past in pasts] or [0] * len(chains)
        cache = self._layout.join(pasts) if pasts else None
        logits, cache = read(self.model, self._layout.held, ids, cache, before, keep)
        after = self._layout.split(cache, pasts or [None] * len(chains), count)
        for chain, past in zip(chains, after, strict=True):
            self._keep(chain, past, count)
        if not nodes:
            return nothing
        rows, columns = zip(*cells, strict=True)
        return read_logits(self.model, self.top, nodes, logits[list(rows), list(columns)])

    def _keep(self, chain: _Chain, past: Past, count: int) -> None:
        """Go on after what was read of a chain; at its end, keep what the network does."""
        leaf, whole = chain.nodes[-1], len(chain.ids) >= count
        del chain.ids[:count], chain.nodes[:count]
        chain.past = past
        assert leaf is not None
        sequence, kept = leaf.sequence, self._kept[leaf.sequence]
        if whole and past.length <= len(sequence.ids):
            self._pasts[sequence] = self._layout.flattened(past)
        elif whole and not chain.ids:
            kept[leaf] = past
            if len(kept) > MOST_KEPT:
                del kept[next(iter(kept))]


def layout_of(model: LoadedModel) -> CacheLayout:
    """Return where what a network keeps has rows and ids.

    Raises:
        ValueError: it cannot be taken apart.
    """
    before = [*_attributes(model.network)]
    read(model, (), [[0, 0]], None, [0], 1)
    after = {(path, name): value for path, name, value in _attributes(model.network)}
    held = tuple(
        (path, name)
        for path, name, value in before
        if (now := after.get((path, name))) is not None and now is not value
    )
    return CacheLayout(held, lambda ids: read(model, held, ids, None, [0] * len(ids), 1)[1])


def _attributes(network: PreTrainedModel) -> Iterator[tuple[str, str, torch.Tensor | None]]:
    """Yield the tensors beside parameters and buffers that modules have, or may come to have."""
    for path, module in network.named_modules():
        for name, value in [*vars(module).items()]:
            if value is None or isinstance(value, torch.Tensor):
                yield path, name, value


@torch.inference_mode()
def read(
    model: LoadedModel,
    held: Sequence[tuple[str, str]],
    ids: list[list[int]],
    cache: Any,
    before: Sequence[int],
    keep: int,
) -> tuple[torch.Tensor, Any]:
    """Read ids of shape [rows, count] with a cache, of which each row has so many ids `before`.

    The cache is what the network takes and returns, and what attributes `held` by modules are.

    Returns:
        The logits of the last `keep` columns at least, [rows, keep, output rows], and the cache.
    """
    network = model.network
    parameters = signature(network.forward).parameters
    lengths, new = torch.tensor(before), len(ids[0])
    total = int(lengths.max())
    given: dict[str, Any] = {"input_ids": torch.tensor(ids)}
    if "position_ids" in parameters:
        given["position_ids"] = lengths[:, None] + torch.arange(new)
    if "attention_mask" in parameters and min(before) < total:
        given["attention_mask"] = (torch.arange(total + new) >= total - lengths[:, None]).long()
    given = {name: value.to(model.device) for name, value in given.items()}
    if "logits_to_keep" in parameters:
        given["logits_to_keep"] = keep
    if cache is None:  # networks whose modules hold states return no cache, but fill a given one
        text = network.config.get_text_config()
        cache = DynamicCache(config=text) if held else None, [None] * len(held)
    for (path, attribute), value in zip(held, cache[1], strict=True):
        setattr(network.get_submodule(path), attribute, value)
    name = next(name for name in _CACHES if name in parameters)
    output = network(**given, **{name: cache[0]}, use_cache=True)
    modules = [getattr(network.get_submodule(path), attribute) for path, attribute in held]
    return output.logits, (getattr(output, name, cache[0]), modules)
