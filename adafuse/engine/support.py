"""Which models the tree engine can run: those that take explicit positions and masks."""

import torch

from adafuse.engine.protocol import Engine
from adafuse.errors import UserError
from adafuse.models.language_model import LanguageModel

_TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.5}


def usable_context(model: LanguageModel) -> int:
    """Return the positions within which every layer sees the whole text.

    Layers that attend to a sliding window only differ from full attention beyond it, and the
    tree engine's masks do not slide.
    """
    config = model.network.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if isinstance(window, int) and (kinds is None or "sliding_attention" in kinds):
        return min(model.context, window)
    return model.context


def check_tree_engine(model: LanguageModel) -> None:
    """Run a small tree in both engines and compare; refuse the model if they disagree.

    Models with recurrent states, or that make positions from the attention mask, cannot be fed
    tokens out of order; their own forward passes show it.
    """
    from adafuse.engine.reference import ReferenceEngine
    from adafuse.engine.tree import TreeEngine

    try:
        tree = _probe(TreeEngine(model, top=2, rows=2))
    except (TypeError, ValueError, AttributeError, RuntimeError, IndexError) as error:
        raise UserError(f"{_cannot(model)} ({type(error).__name__}: {error})") from error
    plain = _probe(ReferenceEngine(model, top=2))
    difference = float((tree - plain).abs().max())
    if difference > _TOLERANCE.get(model.network.dtype, 0.5):
        raise UserError(f"{_cannot(model)} (log-probabilities differ by {difference:.3g})")


def _cannot(model: LanguageModel) -> str:
    return f"model {model.name!r} does not work with the tree engine; use --engine reference"


def _probe(engine: Engine) -> torch.Tensor:
    """Grow two branches, commit the second, go on: the distributions after each of these."""
    first, second, third = (index % engine.model.vocabulary for index in (3, 5, 7))
    prompt = [index % engine.model.vocabulary for index in (11, 13, 17, 19)]
    sequence = engine.open(prompt)
    engine.evaluate([sequence.root])
    other, branch = sequence.root.chain((first, third)), sequence.root.chain((second, first))
    engine.evaluate([*other, *branch])
    engine.commit(branch[-1])
    last = sequence.root.chain((third, second))
    engine.evaluate(last)
    vectors = [node.next.vector for node in (other[-1], sequence.root, last[-1]) if node.next]
    engine.close(sequence)
    return torch.stack(vectors)
