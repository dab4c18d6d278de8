"""What is timed: the models' own greedy `generate`, and methods on an engine."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from adafuse.bench.workloads import Workload, without_end
from adafuse.ensemble import Ensemble
from adafuse.models.language_model import LanguageModel
from adafuse.records import Result


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one pass over a workload came to: ids written and forwards taken part in, per model.

    `agreement` is the share of rounds whose pool had one entry; None where there are no rounds.
    """

    tokens: tuple[int, ...]
    forwards: tuple[int, ...]
    agreement: float | None = None


class Case(ABC):
    """Something that is timed; `name` is unique within a workload."""

    name: str
    workload: Workload
    batch_size: int

    @abstractmethod
    def run(self) -> Outcome:
        """Decode the whole workload once."""


@dataclass
class Fused(Case):
    """A method on one of our engines."""

    name: str
    workload: Workload
    batch_size: int
    models: tuple[LanguageModel, ...]
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    engine: str = "tree"
    results: list[Result] = field(default_factory=list, repr=False)

    def run(self) -> Outcome:
        """Decode, and keep the results of this pass."""
        models = without_end(self.models) if self.workload.endless else self.models
        ensemble = Ensemble(models, (1.0,) * len(models))
        self.results = ensemble.generate(
            self.workload.prompts,
            method=self.method,
            max_new_tokens=self.workload.max_new_tokens,
            stop=self.workload.stop,
            batch_size=self.batch_size,
            engine=self.engine,
            **self.options,
        )
        rounds = [taken for result in self.results for taken in result.rounds]
        alone = sum(len(taken.candidates) == 1 for taken in rounds)
        return Outcome(
            tuple(map(sum, zip(*(result.tokens for result in self.results), strict=True))),
            tuple(map(sum, zip(*(result.forwards for result in self.results), strict=True))),
            alone / len(rounds) if rounds else None,
        )


@dataclass
class Generate(Case):
    """Transformers' own greedy `generate` of one model, for as many tokens as `lengths` says.

    Batches are padded on the left, and each is as long as its longest text: that is what users of
    `generate` pay.
    """

    name: str
    workload: Workload
    batch_size: int
    model: LanguageModel
    lengths: Sequence[int]

    def run(self) -> Outcome:
        """Generate exactly the tokens that are asked for."""
        forwards = 0
        for start in range(0, len(self.workload.prompts), self.batch_size):
            part = slice(start, start + self.batch_size)
            steps = max(self.lengths[part])
            if steps:
                self._batch(self.workload.prompts[part], steps)
            forwards += steps * len(self.workload.prompts[part])
        return Outcome((sum(self.lengths),), (forwards,))

    def _batch(self, prompts: Sequence[str], steps: int) -> None:
        rows = [self.model.prompt_ids(prompt) for prompt in prompts]
        width = max(map(len, rows))
        ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        device = self.model.device
        self.model.network.generate(  # type: ignore[operator]
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            max_new_tokens=steps,
            min_new_tokens=steps,
            do_sample=False,
            pad_token_id=0,
        )
