"""One forward of a network over a batch, and the attention masks of its token trees."""

from inspect import signature

import torch

from adafuse.engine.batch import Batch, Inputs, Shape
from adafuse.engine.cache import SlotCache, Step
from adafuse.models.language_model import LanguageModel

FULL, SLIDING = "full_attention", "sliding_attention"

Mask = torch.Tensor | dict[str, torch.Tensor]


class TreeMasks:
    """Builds the mask of a batch for one model.

    Layers that attend to a sliding window see only tokens less than `window` positions back. An
    architecture with both kinds of layers takes one mask per kind, others take a single one.

    Raises:
        ValueError: the model has layers of another kind (chunked or recurrent ones).
    """

    def __init__(self, model: LanguageModel) -> None:
        config = model.network.config.get_text_config()
        window = getattr(config, "sliding_window", None)
        default = [FULL if window is None else SLIDING]
        self._mixed = bool(getattr(config, "layer_types", None))
        self._kinds = sorted(set(getattr(config, "layer_types", None) or default))
        self._window = int(window or 0)
        self._additive = model.network.config._attn_implementation != "sdpa"
        self._dtype = model.network.dtype
        if not {FULL, SLIDING}.issuperset(self._kinds):
            raise ValueError(f"layers of type {sorted({*self._kinds} - {FULL, SLIDING})}")

    def __call__(self, inputs: Inputs) -> Mask:
        """Return which slots each token sees: bool [R, 1, Q, V], or additive for eager."""
        seen = _seen(inputs)
        masks = {kind: self._formed(self._within(seen, inputs, kind)) for kind in self._kinds}
        return masks if self._mixed and len(masks) > 1 else next(iter(masks.values()))

    def _within(self, seen: torch.Tensor, inputs: Inputs, kind: str) -> torch.Tensor:
        if kind == FULL or inputs.shape.view <= self._window:
            return seen
        _, positions, _, _ = inputs.fields
        back = positions[:, :, None] - _slot_positions(inputs)[:, None]
        return seen & (back < self._window)

    def _formed(self, seen: torch.Tensor) -> torch.Tensor:
        mask = seen[:, None]
        if not self._additive:
            return mask
        zeros = torch.zeros(mask.shape, dtype=self._dtype, device=mask.device)
        return zeros.masked_fill_(~mask, torch.finfo(self._dtype).min)


def _seen(inputs: Inputs) -> torch.Tensor:
    """Return which slots each token sees: bool [R, Q, V]."""
    *_, limits = inputs.fields
    seen = torch.arange(inputs.shape.view, device=limits.device) < limits[:, :, None]
    if inputs.ancestors.shape[1]:
        rows, columns, slots, _ = inputs.ancestors
        seen[rows, columns, slots] = True
    return seen


def _slot_positions(inputs: Inputs) -> torch.Tensor:
    """Return the position of the token in each slot, for those that are seen: [R, V]."""
    shape = inputs.shape
    positions = torch.arange(shape.view, device=inputs.fixed.device).repeat(shape.rows, 1)
    rows, _, slots, depths = inputs.ancestors
    positions[rows, slots] = depths
    return positions


class Forward:
    """Runs the network of a model on batches, against the keys and values in its cache."""

    def __init__(self, model: LanguageModel, cache: SlotCache) -> None:
        self.model = model
        self.cache = cache
        self.masks = TreeMasks(model)
        self._keeps = "logits_to_keep" in signature(model.network.forward).parameters

    def __call__(self, batch: Batch) -> torch.Tensor:
        """Return the logits of the nodes of a batch: [nodes, rows of the output layer]."""
        inputs = self.inputs(batch, batch.shape)
        logits = self.network(inputs, self.masks(inputs), batch.keep)
        return logits[inputs.reads[0], inputs.reads[1]]

    def inputs(self, batch: Batch, shape: Shape) -> Inputs:
        """Return the tensors of a batch, padded to `shape`."""
        return batch.inputs(shape, self.cache.rows, self.cache.scratch, self.model.device)

    def network(self, inputs: Inputs, mask: Mask, keep: int) -> torch.Tensor:
        """Return the logits of the last `keep` columns at least: [R, keep, output rows]."""
        ids, positions, slots, _ = inputs.fields
        self.cache.step = Step(inputs.rows, slots, inputs.shape.view, inputs.whole)
        output = self.model.network(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=self.cache,
            use_cache=True,
            **({"logits_to_keep": keep} if self._keeps else {}),
        )
        logits: torch.Tensor = output.logits
        return logits
