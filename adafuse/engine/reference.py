"""The reference engine, which computes everything anew, and which engine runs a model."""

import logging
from collections.abc import Iterable
from weakref import WeakKeyDictionary

import torch
from transformers import PreTrainedModel

from adafuse.engine.node import Engine, Node, TokenSequence, to_run
from adafuse.engine.tree import Reducer, TreeEngine
from adafuse.models.language_model import LanguageModel
from adafuse.models.placement import without_outliers


class ReferenceEngine:
    """Runs the whole text again for every chain of nodes that is asked for."""

    def __init__(self, model: LanguageModel, top: int) -> None:
        self.model = model
        self.context = model.context
        self._reducer = Reducer(model, top)

    def share(self, prefix_ids: list[int]) -> None:
        """Nothing is kept."""

    def open(self, prompt_ids: list[int]) -> TokenSequence:
        """Begin a sequence after a prompt."""
        return TokenSequence(self, prompt_ids)

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

    def close(self, sequence: TokenSequence) -> None:
        """Nothing but the nodes is held for a sequence."""
        sequence.forget()

    @torch.inference_mode()
    def _forward(self, leaf: Node, nodes: list[Node]) -> None:
        ids = torch.tensor([leaf.all_ids()], device=self.model.device)
        logits = self.model.network(input_ids=ids, use_cache=False).logits[0]
        leaf.sequence.forwards += 1
        self._reducer.fill(nodes, logits[[node.depth for node in nodes]])


logger = logging.getLogger(__name__)

_tried: "WeakKeyDictionary[PreTrainedModel, str | None]" = WeakKeyDictionary()
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.1}
_COARSE = 0.5
"""For bfloat16 and quantized weights."""


def engine_for(model: LanguageModel, wanted: str, *, top: int, rows: int, slots: int = 0) -> Engine:
    """Return the engine `wanted` ("tree" or "reference") for a model.

    A model that cannot be fed a tree of tokens runs on the reference engine, which gives the same
    results slowly, and a warning says so. `slots` is how many tokens a sequence may come to.
    """
    if wanted == "tree":
        reason = obstacle(model)
        if reason is None:
            return TreeEngine(model, top, rows, slots)
        logger.warning(
            "%s cannot be fed a tree of tokens (%s); the slower reference engine runs it",
            model.name,
            reason,
        )
    return ReferenceEngine(model, top)


def obstacle(model: LanguageModel) -> str | None:
    """Run a small tree in both engines and compare; return what keeps the model from it, if any.

    A network is tried once.

    Models with recurrent states, or that make positions from the attention mask, cannot be fed
    tokens out of order; their own forward passes show it.
    """
    if model.network not in _tried:
        _tried[model.network] = _try(model)
    return _tried[model.network]


def _try(model: LanguageModel) -> str | None:
    with without_outliers(model.network):
        try:
            tree = _probe(TreeEngine(model, top=2, rows=2))
        except (TypeError, ValueError, AttributeError, RuntimeError, IndexError) as error:
            return f"{type(error).__name__}: {error}"
        plain = _probe(ReferenceEngine(model, top=2))
    difference = float((tree - plain).abs().max())
    if difference > _tolerance(model.network):
        return f"log-probabilities differ by {difference:.3g}"
    return None


def _tolerance(network: PreTrainedModel) -> float:
    # Quantized weights are multiplied in 16 bits, whatever the dtype of the rest.
    quantized = getattr(network, "is_quantized", False)
    return _COARSE if quantized else _TOLERANCE.get(network.dtype, _COARSE)


def _probe(engine: Engine) -> torch.Tensor:
    """Grow two branches, commit the second, go on: the distributions after each of these."""
    first, second, third = (index % engine.model.vocabulary for index in (3, 5, 7))
    prompt = [index % engine.model.vocabulary for index in (11, 13, 17, 19)]
    sequence = engine.open(prompt)
    engine.evaluate([sequence.root])
    other, branch = sequence.root.chain((first, third)), sequence.root.chain((second, first))
    engine.evaluate([*other, *branch])
    vectors = [node.next.logprobs for node in (other[-1], branch[-1]) if node.next]
    engine.commit(branch[-1])
    last = sequence.root.chain((third, second))
    engine.evaluate(last)
    vectors += [node.next.logprobs for node in last[-1:] if node.next]
    engine.close(sequence)
    return torch.stack(vectors)
