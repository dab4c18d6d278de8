"""The reference engine, which computes everything anew."""

import inspect
from collections.abc import Iterable

import torch

from adafuse.engine.forward import read_logits
from adafuse.engine.node import Engine, Node, to_run
from adafuse.models.language_model import LanguageModel
from adafuse.models.positions import RopeLengths, forget_lengths


class ReferenceEngine(Engine):
    """Runs the whole text again for every chain of nodes that is asked for."""

    def __init__(self, model: LanguageModel, top: int) -> None:
        super().__init__(model)
        self.top = top
        self._rope = RopeLengths.of(model.network.config)

    @torch.inference_mode()
    def evaluate(self, nodes: Iterable[Node]) -> None:
        """Fill in the nodes with one full forward per chain, or more if its lengths matter."""
        missing = sorted(to_run(nodes), key=lambda node: node.depth)
        inner = {
            n.parent for n in missing if n.parent and self._factors(n.parent) == self._factors(n)
        }
        for leaf in missing:
            if leaf not in inner:
                self._run(leaf, {n for n in missing if self._factors(n) == self._factors(leaf)})

    def _factors(self, node: Node) -> int:
        return self._rope.factors(node.depth + 1)

    def _run(self, leaf: Node, missing: set[Node]) -> None:
        network, sequence, path = self.model.network, leaf.sequence, leaf.path()
        ids = torch.tensor([sequence.ids + [node.token for node in path]])
        chain = [node for node in (sequence.root, *path) if node in missing]
        if self._rope.vary:
            forget_lengths(network)
        asked = torch.tensor([node.depth for node in chain])
        # The output layer is most of a small model with a large vocabulary.
        keeps = "logits_to_keep" in inspect.signature(network.forward).parameters
        keep = {"logits_to_keep": asked} if keeps else {}
        logits = network(input_ids=ids.to(self.model.device), use_cache=False, **keep).logits[0]
        sequence.forwards += 1
        read_logits(self.model, self.top, chain, logits if keeps else logits[asked])()
