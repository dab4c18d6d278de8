"""Which engine runs a model: a small tree is tried in both."""

import inspect
import logging
from weakref import WeakKeyDictionary

import torch
from transformers import PreTrainedModel

from adafuse.engine.node import Engine, Node
from adafuse.engine.served import ServedEngine
from adafuse.engine.tree import TreeEngine
from adafuse.engine.uncached import ReferenceEngine
from adafuse.errors import UserError
from adafuse.models.language_model import LanguageModel, LoadedModel, ServedModel
from adafuse.models.placement import without_outliers
from adafuse.models.positions import narrow_window, unknown_attention

logger = logging.getLogger(__name__)


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
    if isinstance(model, ServedModel):
        if name == "reference":
            raise UserError(f"{model.name} is on a server, which is its engine; leave out engine")
        return ServedEngine(model, top)
    assert isinstance(model, LoadedModel)
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


def obstacle(model: LoadedModel) -> str | None:
    """Run a small tree in both engines, once per network; return how they differ, if they do.

    Models with recurrent states, or that make positions from the attention mask, cannot be fed
    tokens out of order; their own forward passes show it.
    """
    if model.network not in _obstacles:
        with without_outliers(model.network), narrow_window(model.network):
            _obstacles[model.network] = _compare(model)
    return _obstacles[model.network]


def _compare(model: LoadedModel) -> str | None:
    if (limit := unknown_attention(model.network.config)) is not None:
        return limit
    if "position_ids" not in inspect.signature(type(model.network).forward).parameters:
        return "its positions cannot be set"
    try:
        tree = _probe(TreeEngine(model, top=2, rows=3, strict=True))
        plain = _probe(ReferenceEngine(model, top=2))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - the code of a network may raise anything
        return f"{type(error).__name__}: {error}"
    difference, spread = float((tree - plain).square().mean().sqrt()), float(plain.std())
    quantized = getattr(model.network, "is_quantized", False)
    tolerance = _COARSE if quantized else _TOLERANCE.get(model.network.dtype, _COARSE)
    if difference > tolerance * spread:
        return f"log-probabilities differ by {difference:.3g}, and spread over {spread:.3g}"
    return None


def _probe(engine: Engine) -> torch.Tensor:
    """Grow two branches in each of two unequal rows, commit the second, go on apart and together.

    The rows reach beyond a narrow window. Returns the distributions after each of these.
    """
    vocabulary = engine.model.vocabulary
    first, second, third, *prompt = (i % vocabulary for i in (3, 5, 7, 11, 13, 17, 19))
    sequences = [engine.open(prompt), engine.open([*prompt, second, *prompt])]
    engine.evaluate([sequence.root for sequence in sequences])
    read: list[Node] = []
    for sequence in sequences:
        read += [sequence.root.chain((first, third))[-1], sequence.root.chain((second, first))[-1]]
    engine.evaluate([node for tip in read for node in tip.path()])
    vectors = [node.next.logprobs for node in read if node.next]
    for sequence, branch in zip(sequences, read[1::2], strict=True):
        engine.commit(branch)
        last = sequence.root.chain((third, second))
        engine.evaluate(last)
        vectors += [node.next.logprobs for node in last[-1:] if node.next]
    both = [sequence.root.chain((third, second, first))[-1] for sequence in sequences]
    engine.evaluate(both)
    vectors += [node.next.logprobs for node in both if node.next]
    for sequence in sequences:
        engine.close(sequence)
    return torch.stack(vectors)
