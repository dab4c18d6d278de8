"""The reference engine, which computes everything anew, and which engine runs a model."""

import inspect
import logging
from collections.abc import Iterable
from weakref import WeakKeyDictionary

import torch
from transformers import PreTrainedModel

from adafuse.engine.node import Engine, Node, to_run
from adafuse.engine.tree import TreeEngine, read_logits
from adafuse.models.language_model import LanguageModel
from adafuse.models.placement import without_outliers

logger = logging.getLogger(__name__)


class ReferenceEngine(Engine):
    """Runs the whole text again for every chain of nodes that is asked for."""

    def __init__(self, model: LanguageModel, top: int) -> None:
        super().__init__(model)
        self.top = top

    @torch.inference_mode()
    def evaluate(self, nodes: Iterable[Node]) -> None:
        """Fill in the nodes with one full forward per chain."""
        missing = to_run(nodes)
        inner = {node.parent for node in missing}
        for leaf in missing:
            if leaf not in inner:
                self._run(leaf, set(missing))

    def _run(self, leaf: Node, missing: set[Node]) -> None:
        network, sequence, path = self.model.network, leaf.sequence, leaf.path()
        ids = torch.tensor([sequence.ids + [node.token for node in path]])
        chain = [node for node in (sequence.root, *path) if node in missing]
        asked = torch.tensor([node.depth for node in chain])
        # The output layer is most of a small model with a large vocabulary.
        keeps = "logits_to_keep" in inspect.signature(network.forward).parameters
        keep = {"logits_to_keep": asked} if keeps else {}
        logits = network(input_ids=ids.to(self.model.device), use_cache=False, **keep).logits[0]
        sequence.forwards += 1
        read_logits(self.model, self.top, chain, logits if keeps else logits[asked])()


_obstacles: "WeakKeyDictionary[PreTrainedModel, str | None]" = WeakKeyDictionary()
_TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.02}
"""How far the engines may differ, as a share of how far log-probabilities spread: rounding grows
with the logits, and those of some models reach to -70."""
_COARSE = 0.1
"""For bfloat16, and for quantized weights, which are multiplied in 16 bits whatever the dtype."""


def engine_for(model: LanguageModel, name: str, *, top: int, rows: int, slots: int = 0) -> Engine:
    """Return the engine called "tree" or "reference" for a model.

    A model that cannot be fed a tree of tokens runs on the reference engine, which gives the same
    results slowly, and a warning says so. `slots` is how many tokens a sequence may come to.
    """
    if name == "tree":
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
    """Run a small tree in both engines, once per network; return how they differ, if they do.

    Models with recurrent states, or that make positions from the attention mask, cannot be fed
    tokens out of order; their own forward passes show it.
    """
    if model.network not in _obstacles:
        with without_outliers(model.network):
            _obstacles[model.network] = _compare(model)
    return _obstacles[model.network]


def _compare(model: LanguageModel) -> str | None:
    if "position_ids" not in inspect.signature(type(model.network).forward).parameters:
        return "its positions cannot be set"
    try:
        tree = _probe(TreeEngine(model, top=2, rows=2))
    except (TypeError, ValueError, AttributeError, RuntimeError, IndexError) as error:
        return f"{type(error).__name__}: {error}"
    plain = _probe(ReferenceEngine(model, top=2))
    difference, spread = float((tree - plain).square().mean().sqrt()), float(plain.std())
    quantized = getattr(model.network, "is_quantized", False)
    tolerance = _COARSE if quantized else _TOLERANCE.get(model.network.dtype, _COARSE)
    if difference > tolerance * spread:
        return f"log-probabilities differ by {difference:.3g}, and spread over {spread:.3g}"
    return None


def _probe(engine: Engine) -> torch.Tensor:
    """Grow two branches, commit the second, go on: the distributions after each of these."""
    first, second, third, *prompt = (i % engine.model.vocabulary for i in (3, 5, 7, 11, 13, 17, 19))
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
