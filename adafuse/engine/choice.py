"""Which engine runs a model: a small tree is tried in both."""

import inspect
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from transformers import PreTrainedModel

from adafuse.engine.node import Engine, Node
from adafuse.engine.past import CacheLayout
from adafuse.engine.reference import ReferenceEngine
from adafuse.engine.served import ServedEngine
from adafuse.engine.states import COPIES, MOST_KEPT, READINGS, Reading, StateEngine, layout_of
from adafuse.engine.tree import TreeEngine
from adafuse.errors import UserError
from adafuse.models.language_model import LanguageModel, LoadedModel, ServedModel, demands, slots
from adafuse.models.memory import TREE_NODES
from adafuse.models.placement import layer_devices
from adafuse.models.positions import narrow_window, unknown_attention
from adafuse.models.quantization import without_outliers

logger = logging.getLogger(__name__)

T = TypeVar("T")
Made = Callable[[], Engine]


@dataclass(frozen=True, slots=True)
class Way:
    """How a network is run: as a tree, with its own cache (`layout`, `reading`), or neither.

    `obstacles` say what is against the faster ways.
    """

    tree: bool = False
    layout: CacheLayout | None = None
    reading: Reading = READINGS[0]
    obstacles: tuple[str, ...] = ()


_ways: "WeakKeyDictionary[PreTrainedModel, Way]" = WeakKeyDictionary()
_TOLERANCE = {torch.float32: 1e-4, torch.float16: 0.02}
"""How far the engines may differ, as a share of how far log-probabilities spread: rounding grows
with the logits, and those of some models reach to -70."""
_COARSE = 0.1
"""For bfloat16, and for quantized weights, which are multiplied in 16 bits whatever the dtype."""


def engine_for(model: LanguageModel, name: str, *, top: int, rows: int, longest: int = 0) -> Engine:
    """Return the engine called "tree" or "reference" for a model.

    "tree" is the fastest that is exact: a model that cannot be fed a tree of tokens is run on the
    cache that it makes itself, or else on the reference engine, which gives the same results
    slowly, and a warning says so. `longest` is how many ids a text may come to.
    """
    if isinstance(model, ServedModel):
        if name == "reference":
            raise UserError(f"{model.name} is on a server, which is its engine; leave out engine")
        return ServedEngine(model, top)
    assert isinstance(model, LoadedModel)
    if name == "tree":
        way = way_of(model)
        if way.tree:
            return TreeEngine(model, top, rows, slots(model, longest) if longest else 0)
        if way.layout is not None:
            logger.info("%s runs on its own cache (%s)", model.name, way.obstacles[0])
            return StateEngine(model, top, way.layout, way.reading)
        slow = "%s cannot be run with a cache (%s); the slower reference engine runs it"
        logger.warning(slow, model.name, "; ".join(way.obstacles))
    return ReferenceEngine(model, top)


def needs(model: LanguageModel, name: str, longest: int) -> list[tuple[torch.device, int]]:
    """Return the bytes by device that an example of at most `longest` ids takes on an engine.

    The reference engine keeps nothing, the states and the tree are counted, with the copies that a
    forward makes, and so is a float32 row over the vocabulary per tree node.
    """
    if not isinstance(model, LoadedModel):
        return []
    way = way_of(model) if name == "tree" else Way()
    if way.tree:
        return demands(model, longest)
    sizes = Counter({model.device: TREE_NODES * 4 * model.vocabulary})
    if way.layout is not None:
        states, per_id = way.layout.bytes
        layers = layer_devices(model.network, model.device)
        taken = (MOST_KEPT + COPIES) * states + COPIES * per_id * slots(model, longest)
        sizes.update({at: taken * count // len(layers) for at, count in Counter(layers).items()})
    return list(sizes.items())


def way_of(model: LoadedModel) -> Way:
    """Run a small tree in the engines, once per network; return the fastest that is exact.

    Models with states, for one, cannot be fed tokens out of order; their forward passes show it.
    """
    if model.network not in _ways:
        with without_outliers(model.network), narrow_window(model.network):
            way = _find_way(model)
        if way.layout is not None:
            way = replace(way, layout=layout_of(model))  # with windows of their own size
        _ways[model.network] = way
    return _ways[model.network]


def _find_way(model: LoadedModel) -> Way:
    plain = _tried(lambda: _probe(ReferenceEngine(model, top=2)))
    if isinstance(plain, str):  # each example says so
        return Way(obstacles=(plain,))
    if plain.isnan().any():
        small = " or load it in float32" * (model.dtype == torch.float16)
        return Way(obstacles=(f"it gives NaN: its weights are damaged; download it again{small}",))
    differs = partial(_differs, model, plain)
    obstacle = unknown_attention(model.network.config)
    if "position_ids" not in inspect.signature(type(model.network).forward).parameters:
        obstacle = obstacle or "its positions cannot be set"
    if model.network.config._attn_implementation == "flex_attention":  # it would crash
        obstacle = obstacle or "flex_attention takes no mask of a tree"
    obstacle = obstacle or differs(lambda: TreeEngine(model, 2, rows=3, strict=True))
    if obstacle is None:
        return Way(tree=True)
    layout, obstacles = _tried(partial(layout_of, model)), [obstacle]
    if isinstance(layout, str):
        return Way(obstacles=(obstacle, layout))
    for near, reading in product((0.1, 1.0), READINGS):  # a fault may be small, noise is smaller
        obstacle = differs(partial(StateEngine, model, 2, layout, reading, strict=True), near)
        if obstacle is None:
            return Way(layout=layout, reading=reading, obstacles=tuple(obstacles))
        obstacles.append(obstacle)
    return Way(obstacles=tuple(dict.fromkeys(obstacles)))


def _tried(call: Callable[[], T]) -> T | str:
    """Return what a call gives, or why it fails: the code of a network may raise anything."""
    try:
        return call()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - see above
        return f"{type(error).__name__}: {error}"


def _differs(model: LoadedModel, plain: torch.Tensor, made: Made, near: float = 1.0) -> str | None:
    """Return how an engine differs from the reference engine, by more than `near` allows."""
    found = _tried(lambda: _probe(made()))
    if isinstance(found, str):
        return found
    known = plain.isfinite()  # ids that no token has are not likely at all
    if not known.any() or not torch.equal(found.isfinite(), known):
        return "probabilities are missing"
    difference = float((found - plain)[known].square().mean().sqrt())
    spread = float(plain[known].std())
    quantized = getattr(model.network, "is_quantized", False)
    tolerance = _COARSE if quantized else _TOLERANCE.get(model.network.dtype, _COARSE)
    if not difference <= near * tolerance * spread:
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
    tips = [sequence.root.chain((third, second))[-1] for sequence in sequences]
    single = [tip.child(token) for tip in tips for token in (first, second)]
    engine.evaluate(single)
    vectors += [node.next.logprobs for node in single if node.next]
    for sequence in sequences:
        engine.close(sequence)
    return torch.stack(vectors)
