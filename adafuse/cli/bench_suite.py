"""What `adafuse bench` times: workloads, cases side by side, and the ratios between them."""

import gc
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch

import adafuse.toy
from adafuse.engine.reference import engine_for
from adafuse.ensemble import Ensemble
from adafuse.models.language_model import LanguageModel
from adafuse.records import Result

ROWS = Path(adafuse.toy.__file__).parent / "benchmarks" / "toy_math.jsonl"


@dataclass(frozen=True, slots=True)
class Workload:
    """Prompts, and how long an answer may get; an `endless` one is never ended by a model."""

    name: str
    prompts: tuple[str, ...]
    max_new_tokens: int
    stop: tuple[str, ...] = ()
    endless: bool = False

    def first(self, count: int) -> "Workload":
        """Return the same with `count` prompts, repeated as often as needed."""
        prompts = (self.prompts * -(-count // len(self.prompts)))[:count]
        return replace(self, prompts=prompts)


def chains(count: int) -> Workload:
    """Return chains of thought: short prompts, about 40 tokens each to write."""
    prompts = [f"Question: {question}\nLet's think step by step\n" for question in _questions()]
    chosen = tuple(prompts[:count])
    return Workload("chains of thought", chosen, 128, stop=("Question:", "\n\n"))


def long_prompts(count: int, tokens: int, model: LanguageModel, new_tokens: int) -> Workload:
    """Return prompts of about `tokens` ids of `model`, each of other words."""
    questions = _questions()
    prompts = tuple(_filled(questions[n:] + questions[:n], tokens, model) for n in range(count))
    return Workload(f"{tokens}-token prompts", prompts, new_tokens, endless=True)


def openings(count: int, tokens: int) -> Workload:
    """Return questions, with `tokens` ids to write each, far beyond an answer."""
    prompts = tuple(f"Question: {question}\n" for question in _questions()[:count])
    return Workload("openings", prompts, tokens, endless=True)


def long_outputs(opened: Sequence[str], tokens: int) -> Workload:
    """Return openings and what was written behind them as prompts, with `tokens` ids to write each.

    Behind an answer models agree less than in it. These texts are past that, so that the first half
    of what is written is like the second, and costs differ by length alone.
    """
    return Workload(f"{tokens}-token outputs", tuple(opened), tokens, endless=True)


def without_end(models: Sequence[LanguageModel]) -> tuple[LanguageModel, ...]:
    """Return the models as ones that go on behind an end token, as `min_new_tokens` makes them."""
    return tuple(replace(model, stop_ids=frozenset()) for model in models)


def _filled(questions: Sequence[str], tokens: int, model: LanguageModel) -> str:
    text = "".join(f"Question: {question}\n" for question in questions)
    text *= -(-tokens // len(model.prompt_ids(text)))
    share = tokens / len(model.prompt_ids(text))
    return text[: int(share * len(text))]


def _questions() -> list[str]:
    lines = ROWS.read_text(encoding="utf-8").split("\n")
    return [json.loads(line)["question"] for line in lines if line]


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


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one case over all repeats: median and quartiles."""

    case: str
    workload: str
    prompts: int
    batch_size: int
    seconds: float
    low: float
    high: float
    outcome: Outcome

    @property
    def tokens_per_second(self) -> float:
        """Ids per second that the first model wrote."""
        return self.outcome.tokens[0] / self.seconds


Progress = Callable[[str, float | None], None]
"""Is told what comes next, and the tokens per second of what was timed last."""


def measure(
    cases: Sequence[Case], repeats: int, progress: Progress = lambda name, speed: None
) -> list[Timing]:
    """Run each case once unmeasured, then all of them in turn, `repeats` times."""
    speed: float | None = None
    for case in cases:
        progress(f"warming up {case.name}", speed)
        case.run()
    seconds: dict[str, list[float]] = {case.name: [] for case in cases}
    outcomes: dict[str, Outcome] = {}
    for turn in range(repeats):
        for case in cases:
            progress(f"{turn + 1} of {repeats}: {case.name}", speed)
            gc.collect()
            taken, outcomes[case.name] = _timed(case)
            seconds[case.name].append(taken)
            speed = outcomes[case.name].tokens[0] / taken
    return [_timing(case, seconds[case.name], outcomes[case.name]) for case in cases]


def _timed(case: Case) -> tuple[float, Outcome]:
    start = time.perf_counter()
    outcome = case.run()  # its last result was read from the device
    return time.perf_counter() - start, outcome


def _timing(case: Case, seconds: list[float], outcome: Outcome) -> Timing:
    low, high = seconds[0], seconds[0]
    if len(seconds) > 1:
        low, _, high = quantiles(seconds, n=4, method="inclusive")
    work = case.workload
    return Timing(
        case.name,
        work.name,
        len(work.prompts),
        case.batch_size,
        median(seconds),
        low,
        high,
        outcome,
    )


WARM_UP = 8
"""Steps that are not measured: among them those that capture a graph."""
COPIED = {"cuda": 1 << 30, "cpu": 1 << 26}
"""Bytes of a copy: more than the caches hold."""


@dataclass(frozen=True, slots=True)
class Floor:
    """Seconds of one-token steps of a model, its bytes of weights, and bytes per second of a copy.

    A copy counts what it reads and what it writes.
    """

    model: str
    seconds: float
    weights: int
    bandwidth: float

    @property
    def ratio(self) -> float:
        """How often the weights could have been read in the time of a step."""
        return self.seconds * self.bandwidth / self.weights


def floor(model: LanguageModel, repeats: int = 50) -> Floor:
    """Measure steps of one token behind a short prompt at batch 1, and copies: medians."""
    weights = sum(p.numel() * p.element_size() for p in model.network.parameters())
    return Floor(model.name, _step(model, repeats), weights, _bandwidth(model.device, repeats))


def _step(model: LanguageModel, repeats: int) -> float:
    engine = engine_for(model, "tree", top=2, rows=1)
    sequence = engine.open([index % model.vocabulary for index in range(3, 35)])

    def step() -> None:
        engine.evaluate([sequence.root])
        assert sequence.root.next is not None
        engine.commit(sequence.root.child(sequence.root.next.greedy))

    for _ in range(WARM_UP):
        step()
    seconds = median(_timed_of_floor(step, model.device) for _ in range(repeats))
    engine.close(sequence)
    return seconds


def _bandwidth(device: torch.device, repeats: int) -> float:
    size = COPIED.get(device.type, COPIED["cpu"])
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = median(_timed_of_floor(lambda: target.copy_(source), device) for _ in range(repeats))
    return 2 * size / seconds


def _timed_of_floor(run: Callable[[], object], device: torch.device) -> float:
    settle(device)
    start = time.perf_counter()
    run()
    settle(device)
    return time.perf_counter() - start


def settle(device: torch.device) -> None:
    """Wait until a device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


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
