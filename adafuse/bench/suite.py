"""Which cases are timed together, and the ratios that they are timed for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adafuse.bench.cases import Case, Fused, Generate
from adafuse.bench.measure import Timing
from adafuse.bench.workloads import Workload, chains, long_outputs, long_prompts
from adafuse.models.language_model import LanguageModel

BRANCHINGS = (1, 3)


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
        work = long_prompts(2, self.long_prompt, self.models[0], 12)
        tree = self._adafuse(f"adafuse, {work.name}", work, 1)
        plain = self._adafuse(f"reference, {work.name}", work, 1, engine="reference")
        outputs = [long_outputs(2, tokens) for tokens in self._outputs()]
        return [tree, plain, *(self._adafuse(f"adafuse, {w.name}", w, 1) for w in outputs)]

    def _adafuse(
        self, name: str, work: Workload, size: int, branching: int = 1, engine: str = "tree"
    ) -> Fused:
        options = {**self.options, "branching": branching}
        return Fused(name, work, size, self.models, "adafuse", options, engine)

    def ratios(self, timings: Sequence[Timing]) -> list[Ratio]:
        """Return the ratios that docs/performance.md promises."""
        at = {timing.case: timing for timing in timings}

        def ratio(above: str, below: str) -> float:
            return at[above].seconds / at[below].seconds

        first, last = (f"adafuse B 1, batch {self.batch_sizes[end]}" for end in (0, -1))
        work, prompts = at[first].outcome, f"{self.long_prompt}-token prompts"
        half, whole = (f"{tokens}-token outputs" for tokens in self._outputs())
        return [
            *self._against_alone(timings),
            Ratio(f"throughput, {last} / {first}", ratio(first, last), "at least 6"),
            Ratio("forwards / token", sum(work.forwards) / work.tokens[0], "at most 1.6"),
            Ratio(
                f"reference engine / tree engine, {prompts}",
                ratio(f"reference, {prompts}", f"adafuse, {prompts}"),
                "at least 10",
            ),
            Ratio(
                f"{whole} / {half}", ratio(f"adafuse, {whole}", f"adafuse, {half}"), "at most 2.2"
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
