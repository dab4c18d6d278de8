"""Which cases are timed together, and the ratios that they are timed for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from adafuse.bench.cases import Case, Fused, Generate
from adafuse.bench.floor import Floor
from adafuse.bench.measure import Timing
from adafuse.bench.workloads import Workload, chains, long_outputs, long_prompts, openings
from adafuse.models.language_model import LanguageModel

BRANCHINGS = (1, 3)
CHAIN = 48
"""Ids to write behind a long prompt: about a chain of thought."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """One number that says what something costs in terms of something else; `target` bounds it."""

    name: str
    value: float
    target: str


@dataclass(frozen=True)
class Suite:
    """Sizes of a run, and the options of `adafuse` besides B."""

    models: tuple[LanguageModel, ...]
    prompts: int
    batch_sizes: tuple[int, ...]
    long_prompt: int
    long_output: int
    options: Mapping[str, Any]
    others: Mapping[str, Mapping[str, Any]]

    def cases(self) -> list[Case]:
        """Return all cases; those of `generate` write as many tokens as the fused ones wrote."""
        work = chains(self.prompts)
        found: list[Case] = []
        for size in self.batch_sizes:
            for branching in BRANCHINGS:
                found += self._against_generate(work, size, branching)
        found += self._long()
        found += [
            Fused(f"{name}, batch 8", work, 8, self.models, name, options)
            for name, options in self.others.items()
        ]
        return found

    def _against_generate(self, work: Workload, size: int, branching: int) -> list[Case]:
        label = f"B {branching}, batch {size}"
        fused = self._adafuse(f"adafuse {label}", work, size, branching)
        fused.run()
        alone = [
            Generate(
                f"generate {number + 1} for {label}",
                work,
                size,
                model,
                [result.tokens[number] for result in fused.results],
            )
            for number, model in enumerate(self.models)
        ]
        return [fused, *alone]

    def _long(self) -> list[Case]:
        work = long_prompts(2, self.long_prompt, self.models[0], CHAIN)
        tree = self._adafuse(f"adafuse, {work.name}", work, 1)
        plain = self._adafuse(f"reference, {work.name}", work, 1, engine="reference")
        opened = self._adafuse("openings", openings(4, self.long_output), 4)
        opened.run()
        prompts = zip(opened.workload.prompts, opened.results, strict=True)
        texts = [prompt + result.text for prompt, result in prompts]
        outputs = [long_outputs(texts, tokens) for tokens in self._outputs()]
        return [tree, plain, *(self._adafuse(f"adafuse, {w.name}", w, 1) for w in outputs)]

    def _adafuse(
        self, name: str, work: Workload, size: int, branching: int = 1, engine: str = "tree"
    ) -> Fused:
        options = {**self.options, "branching": branching}
        return Fused(name, work, size, self.models, "adafuse", options, engine)

    def ratios(self, timings: Sequence[Timing], floors: Sequence[Floor] = ()) -> list[Ratio]:
        """Return the ratios that docs/performance.md promises."""
        at = {timing.case: timing for timing in timings}

        def ratio(above: str, below: str) -> float:
            return at[above].seconds / at[below].seconds

        first, last = (f"adafuse B 1, batch {self.batch_sizes[end]}" for end in (0, -1))
        work, prompts = at[first].outcome, f"{self.long_prompt}-token prompts"
        half, whole = (f"{tokens}-token outputs" for tokens in self._outputs())
        return [
            *self._against_alone(timings),
            Ratio(
                f"throughput, {last} / {first}",
                ratio(first, last),
                "at least 15" if self.models[0].device.type == "cuda" else "at least 6",
            ),
            Ratio("forwards / token", sum(work.forwards) / work.tokens[0], "at most 1.6"),
            Ratio(
                f"reference engine / tree engine, {prompts}",
                ratio(f"reference, {prompts}", f"adafuse, {prompts}"),
                "at least 10",
            ),
            Ratio(
                f"{whole} / {half}", ratio(f"adafuse, {whole}", f"adafuse, {half}"), "at most 2.2"
            ),
            *(
                Ratio(f"one-token step / a copy of the weights, {f.model}", f.ratio, "at most 1.35")
                for f in floors
            ),
        ]

    def _against_alone(self, timings: Sequence[Timing]) -> Iterator[Ratio]:
        seconds = {timing.case: timing.seconds for timing in timings}
        for size in self.batch_sizes:
            for branching, bound in zip(BRANCHINGS, ("at most 1.0", "at most 1.6"), strict=True):
                label = f"B {branching}, batch {size}"
                alone = sum(s for name, s in seconds.items() if name.endswith(f"for {label}"))
                value = seconds[f"adafuse {label}"] / alone
                yield Ratio(f"adafuse / generate of all, {label}", value, bound * (size == 1))

    def _outputs(self) -> tuple[int, int]:
        return self.long_output // 2, self.long_output


def median_margin(models: tuple[LanguageModel, ...]) -> float:
    """Return a tau at which rounds of 1, 2 and 3 words occur: the median start-of-word margin.

    Models with random weights are never confident by the threshold of trained ones.
    """
    case = Fused("margins", chains(8), 8, models, "adafuse", {"tau": 2.0})
    case.run()
    rounds = [taken for result in case.results for taken in result.rounds]
    return median(margin for taken in rounds for row in taken.margins for margin in row)
