"""The reference engine, which computes everything anew."""

import inspect
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import torch

from adafuse.engine.forward import read_logits
from adafuse.engine.node import Engine, Node, to_run
from adafuse.models.language_model import LoadedModel
from adafuse.models.positions import RopeLengths, forget_lengths

_ROUNDING = 0.02
"""How far logits may differ by rounding, as a share of how far they spread."""


class ReferenceEngine(Engine):
    """Runs the whole text again for every chain of nodes that is asked for."""

    model: LoadedModel

    def __init__(self, model: LoadedModel, top: int) -> None:
        super().__init__(model)
        self.top = top

    @cached_property
    def _rope(self) -> RopeLengths:
        return RopeLengths.of(self.model.network.config)

    @cached_property
    def _causal(self) -> bool:
        """Whether tokens see nothing that follows: with BERT, unless it is a decoder, they do."""
        ids = [[i % self.model.vocabulary for i in (3, 5, last)] for last in (7, 11)]
        one, other = (self._forward([each], {}).logits[0, 1].float() for each in ids)
        return float((one - other).square().mean().sqrt()) <= _ROUNDING * float(one.std())

    @torch.inference_mode()
    def evaluate(self, nodes: Iterable[Node]) -> None:
        """Fill in the nodes with a full forward per chain, or more if its length matters."""
        missing = sorted(to_run(nodes), key=lambda node: node.depth)
        inner = {
            n.parent for n in missing if n.parent and self._factors(n.parent) == self._factors(n)
        }
        for leaf in missing:
            if leaf not in inner:
                self._run(leaf, {n for n in missing if self._factors(n) == self._factors(leaf)})

    def _factors(self, node: Node) -> int:
        return self._rope.factors(node.depth + 1) if self._causal else node.depth

    def _run(self, leaf: Node, missing: set[Node]) -> None:
        network, sequence, path = self.model.network, leaf.sequence, leaf.path()
        chain = [node for node in (sequence.root, *path) if node in missing]
        depths = torch.tensor([node.depth for node in chain])
        # The output layer is most of a small model with a large vocabulary.
        keeps = "logits_to_keep" in inspect.signature(network.forward).parameters
        keep = {"logits_to_keep": depths} if keeps else {}
        logits = self._forward([sequence.ids + [node.token for node in path]], keep).logits[0]
        sequence.count(range(len(sequence.ids) + len(path)))
        read_logits(self.model, self.top, chain, logits if keeps else logits[depths])()

    def _forward(self, ids: list[list[int]], keep: dict[str, torch.Tensor]) -> Any:
        network = self.model.network
        if self._rope.vary:
            forget_lengths(network)
        on_device = torch.tensor(ids).to(self.model.device)
        return network(input_ids=on_device, use_cache=False, **keep)
