"""One forward of a network over a batch."""

from inspect import signature

import torch

from adafuse.engine.batch import Batch, Inputs, Shape
from adafuse.engine.cache import SlotCache, Step
from adafuse.engine.masks import Mask, TreeMasks
from adafuse.models.language_model import LanguageModel


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
        self.cache.step = Step(inputs.rows, inputs.slots, inputs.shape.view, inputs.whole)
        output = self.model.network(
            input_ids=inputs.ids,
            position_ids=inputs.positions,
            attention_mask=mask,
            past_key_values=self.cache,
            use_cache=True,
            **({"logits_to_keep": keep} if self._keeps else {}),
        )
        logits: torch.Tensor = output.logits
        return logits
