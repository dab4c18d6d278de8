"""The plain engine: one full forward per request, no cache, no tree, no batch.

It is the oracle that every optimisation of the tree engine is compared with.
"""

from collections.abc import Iterable

import torch

from adafuse.engine.distribution import Reducer
from adafuse.engine.node import Node, Sequence, to_run
from adafuse.models.language_model import LanguageModel


class ReferenceEngine:
    """Runs the whole text again for every chain of nodes that is asked for."""

    def __init__(self, model: LanguageModel, top: int) -> None:
        self.model = model
        self.context = model.context
        self._reducer = Reducer(model, top)

    def share(self, prefix_ids: list[int]) -> None:
        """Nothing is kept."""

    def open(self, prompt_ids: list[int]) -> Sequence:
        """Begin a sequence after a prompt."""
        return Sequence(self, prompt_ids)

    def evaluate(self, nodes: Iterable[Node]) -> None:
        """Fill in the nodes with one full forward per chain."""
        wanted = {id(node): node for node in to_run(nodes)}
        inner = {id(node.parent) for node in wanted.values()}
        for leaf in [node for key, node in wanted.items() if key not in inner]:
            line = [leaf.sequence.root, *leaf.path()]
            self._forward(leaf, [node for node in line if id(node) in wanted])

    def commit(self, node: Node) -> None:
        """Append the path to `node` to its sequence."""
        node.sequence.commit(node)

    def close(self, sequence: Sequence) -> None:
        """Nothing but the nodes is held for a sequence."""
        sequence.forget()

    @torch.inference_mode()
    def _forward(self, leaf: Node, nodes: list[Node]) -> None:
        ids = torch.tensor([leaf.all_ids()], device=self.model.device)
        logits = self.model.network(input_ids=ids, use_cache=False).logits[0]
        leaf.sequence.forwards += 1
        self._reducer.fill(nodes, logits[[node.depth for node in nodes]])
