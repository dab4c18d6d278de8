"""What `adafuse bench` times: workloads, cases side by side, and the ratios between them."""

import gc
import json
import os
import platform
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from tqdm import tqdm
from transformers import AutoConfig, AutoModelForCausalLM

import adafuse.toy
from adafuse.engine.reference import engine_for
from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.models.language_model import LanguageModel, load_tokenizer
from adafuse.models.placement import Place
from adafuse.models.spec import ModelSpec
from adafuse.records import Result
from adafuse.workflow.provenance import source_commit, versions

ROWS = Path(adafuse.toy.__file__).parent / "benchmarks" / "toy_math.jsonl"


def random_model(config: str, spec: ModelSpec, seed: int) -> LanguageModel:
    """Return a model of the shape of a configuration file, so that no download is needed.

    Args:
        config: a config.json or its folder.
        spec: whose tokenizer it has, and its one device.
        seed: of the weights.

    Raises:
        UserError: no such configuration, or fewer rows in it than the tokenizer has ids.
    """
    if not Path(config).exists():
        raise UserError(f"{config!r} does not exist; give a config.json or its folder")
    shape, tokenizer = AutoConfig.from_pretrained(config), load_tokenizer(spec)
    if shape.get_text_config().vocab_size < len(tokenizer):
        raise UserError(f"{config!r} has a vocabulary smaller than the tokenizer {spec.path!r}")
    place = Place.of(spec)
    torch.manual_seed(seed)
    factory: Any = AutoModelForCausalLM
    with torch.device(place.device):
        network = factory.from_config(shape, dtype=place.dtype).eval()
    return LanguageModel(
        name=config,
        tokenizer=tokenizer,
        end_ids=frozenset({tokenizer.eos_token_id}),
        stop_ids=frozenset({tokenizer.eos_token_id}),
        network=network,
        context=shape.get_text_config().max_position_embeddings,
    )


@dataclass(frozen=True, slots=True)
class Workload:
    """Prompts, and how long an answer may get; an `endless` one is never ended by a model."""

    name: str
    prompts: tuple[str, ...]
    max_new_tokens: int
    stop: tuple[str, ...] = ()
    endless: bool = False


def chains(count: int) -> Workload:
    """Return chains of thought: short prompts, about 40 tokens each to write."""
    prompts = [f"Question: {question}\nLet's think step by step\n" for question in _questions()]
    return Workload("chains of thought", tuple(prompts[:count]), 128, stop=("Question:", "\n\n"))


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
    """Return openings with what was written after them as prompts, `tokens` ids to write each.

    After an answer models agree less than in it. These texts are past that, so that the first half
    of what is written is like the second, and costs differ by length alone.
    """
    return Workload(f"{tokens}-token outputs", tuple(opened), tokens, endless=True)


def without_end(models: Sequence[LanguageModel]) -> tuple[LanguageModel, ...]:
    """Return the models as ones that go on after an end token, as `min_new_tokens` makes them."""
    return tuple(replace(model, stop_ids=frozenset()) for model in models)


def _filled(questions: Sequence[str], tokens: int, model: LanguageModel) -> str:
    text = "".join(f"Question: {question}\n" for question in questions)
    text *= -(-tokens // len(model.prompt_ids(text)))
    return text[: int(tokens / len(model.prompt_ids(text)) * len(text))]


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


@dataclass
class Fused:
    """A method on one of our engines; `name` is unique among the cases."""

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
        self.results = Ensemble(models, (1.0,) * len(models)).generate(
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
class Generate:
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
        self.model.network.generate(  # type: ignore[operator]
            input_ids=ids.to(self.model.device),
            attention_mask=mask.to(self.model.device),
            max_new_tokens=steps,
            min_new_tokens=steps,
            do_sample=False,
            pad_token_id=0,
        )


Case = Fused | Generate


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
    tokens_per_second: float

    @classmethod
    def of(cls, case: Case, taken: list[float], done: Outcome) -> "Timing":
        """Summarise the repeats of a case, which is fast by the ids of its first model."""
        quartiles = quantiles(taken, method="inclusive") if len(taken) > 1 else taken * 3
        low, middle, high = quartiles
        about = case.name, case.workload.name, len(case.workload.prompts), case.batch_size
        return cls(*about, middle, low, high, done, done.tokens[0] / middle)


def measure(cases: Sequence[Case], repeats: int, bar: "tqdm[Any] | None" = None) -> list[Timing]:
    """Run each case once unmeasured, then all of them in turn, `repeats` times."""
    bar = bar if bar is not None else tqdm(disable=True)
    bar.reset(total=(repeats + 1) * len(cases))
    seconds: dict[str, list[float]] = {case.name: [] for case in cases}
    outcomes: dict[str, Outcome] = {}
    for turn in range(repeats + 1):
        for case in cases:
            bar.set_description(
                f"{turn} of {repeats}: {case.name}" if turn else f"warming up {case.name}"
            )
            gc.collect()
            start = time.perf_counter()
            outcomes[case.name] = case.run()  # its last result was read from the device
            taken = time.perf_counter() - start
            if turn:
                seconds[case.name].append(taken)
            speed = outcomes[case.name].tokens[0] / taken
            bar.set_postfix_str(f"{speed:.1f} tokens/s", refresh=False)
            bar.update()
    return [Timing.of(case, seconds[case.name], outcomes[case.name]) for case in cases]


WARM_UP = 8
"""Steps that are not measured: among them those that capture a graph."""
COPIED = {"cuda": 1 << 30, "cpu": 1 << 26}
"""Bytes of a copy: more than the caches hold."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """One number that says what something costs in terms of something else; `target` bounds it."""

    name: str
    value: float
    target: str


def floor(model: LanguageModel, repeats: int = 50) -> Ratio:
    """Compare a step of one token after a short prompt at batch 1 with a copy of the weights.

    A copy counts what it reads and what it writes; both are medians.
    """
    engine = engine_for(model, "tree", top=2, rows=1)
    sequence = engine.open([index % model.vocabulary for index in range(3, 35)])

    def step() -> None:
        engine.evaluate([sequence.root])
        assert sequence.root.next is not None
        engine.commit(sequence.root.child(sequence.root.next.greedy))

    for _ in range(WARM_UP):
        step()
    seconds = _median_seconds(step, model.device, repeats)
    engine.close(sequence)
    size = COPIED.get(model.device.type, COPIED["cpu"])
    source = torch.ones(size, dtype=torch.uint8, device=model.device)
    copy = partial(torch.empty_like(source).copy_, source)
    bandwidth = 2 * size / _median_seconds(copy, model.device, repeats)
    weights = sum(p.numel() * p.element_size() for p in model.network.parameters())
    name = f"one-token step / a copy of the weights, {model.name}"
    return Ratio(name, seconds * bandwidth / weights, "at most 1.35")


def _median_seconds(run: Callable[[], object], device: torch.device, repeats: int) -> float:
    def settled() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    seconds = []
    for _ in range(repeats):
        start = settled()
        run()
        seconds.append(settled() - start)
    return median(seconds)


BRANCHINGS = {1: "at most 1.0", 3: "at most 1.6"}
"""Values of B, and what they may cost at batch 1 in terms of the models alone."""
CHAIN = 48
"""Ids to write after a long prompt: about a chain of thought."""


@dataclass(frozen=True)
class Suite:
    """Sizes of a run, the options of `adafuse` besides B, and the other methods."""

    models: tuple[LanguageModel, ...]
    prompts: int
    batch_sizes: tuple[int, ...]
    long_prompt: int
    long_output: int
    options: Mapping[str, Any]
    others: Sequence[str]

    def cases(self) -> list[Case]:
        """Return all cases; those of `generate` write as many tokens as the fused ones wrote."""
        work = chains(self.prompts)
        found: list[Case] = []
        for size in self.batch_sizes:
            for branching in BRANCHINGS:
                found += self._against_generate(work, size, branching)
        others = [Fused(f"{name}, batch 8", work, 8, self.models, name) for name in self.others]
        return [*found, *self._long(), *others]

    def _against_generate(self, work: Workload, size: int, branching: int) -> Iterator[Case]:
        label = f"B {branching}, batch {size}"
        fused = self._adafuse(f"adafuse {label}", work, size, branching)
        fused.run()
        yield fused
        for number, model in enumerate(self.models):
            lengths = [result.tokens[number] for result in fused.results]
            yield Generate(f"generate {number + 1} for {label}", work, size, model, lengths)

    def _long(self) -> Iterator[Case]:
        work = long_prompts(2, self.long_prompt, self.models[0], CHAIN)
        yield self._adafuse(f"adafuse, {work.name}", work, 1)
        yield self._adafuse(f"reference, {work.name}", work, 1, engine="reference")
        opened = self._adafuse("openings", openings(4, self.long_output), 4)
        opened.run()
        prompts = zip(opened.workload.prompts, opened.results, strict=True)
        texts = [prompt + result.text for prompt, result in prompts]
        for tokens in (self.long_output // 2, self.long_output):
            work = long_outputs(texts, tokens)
            yield self._adafuse(f"adafuse, {work.name}", work, 1)

    def _adafuse(
        self, name: str, work: Workload, size: int, branching: int = 1, engine: str = "tree"
    ) -> Fused:
        options = {**self.options, "branching": branching}
        return Fused(name, work, size, self.models, "adafuse", options, engine)

    def ratios(self, timings: Sequence[Timing]) -> list[Ratio]:
        """Return the ratios of cases that docs/performance.md promises."""
        seconds = {timing.case: timing.seconds for timing in timings}

        def ratio(name: str, above: str, below: str, target: str) -> Ratio:
            return Ratio(name, seconds[above] / seconds[below], target)

        first, last = (f"adafuse B 1, batch {self.batch_sizes[end]}" for end in (0, -1))
        work = next(timing.outcome for timing in timings if timing.case == first)
        throughput = "at least 15" if self.models[0].device.type == "cuda" else "at least 6"
        long = f"{self.long_prompt}-token prompts"
        half, whole = (f"{n}-token outputs" for n in (self.long_output // 2, self.long_output))
        return [
            *self._against_alone(seconds),
            ratio(f"throughput, {last} / {first}", first, last, throughput),
            Ratio("forwards / token", sum(work.forwards) / work.tokens[0], "at most 1.6"),
            ratio(
                f"reference engine / tree engine, {long}",
                f"reference, {long}",
                f"adafuse, {long}",
                "at least 10",
            ),
            ratio(f"{whole} / {half}", f"adafuse, {whole}", f"adafuse, {half}", "at most 2.2"),
        ]

    def _against_alone(self, seconds: Mapping[str, float]) -> Iterator[Ratio]:
        for size in self.batch_sizes:
            for branching, bound in BRANCHINGS.items():
                label = f"B {branching}, batch {size}"
                alone = sum(s for name, s in seconds.items() if name.endswith(f"for {label}"))
                value = seconds[f"adafuse {label}"] / alone
                yield Ratio(f"adafuse / generate of all, {label}", value, bound * (size == 1))


def median_margin(models: tuple[LanguageModel, ...]) -> float:
    """Return a tau at which rounds of 1, 2 and 3 words occur: the median start-of-word margin.

    Models with random weights are never confident by the threshold of trained ones.
    """
    case = Fused("margins", chains(8), 8, models, "adafuse", {"tau": 2.0})
    case.run()
    rounds = [taken for result in case.results for taken in result.rounds]
    return median(margin for taken in rounds for row in taken.margins for margin in row)


def record(
    model: LanguageModel, command: str, timings: Sequence[Timing], ratios: Sequence[Ratio]
) -> dict[str, Any]:
    """Put what was measured together with this machine and the device of a model, JSON-ready.

    `peak_mib` is the most memory that the process had on the host and on a CUDA device.
    """
    device, name, most = model.device, "CPU", None
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        most = torch.cuda.max_memory_allocated(device) / (1 << 20)
    machine = {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "device": name,
        "dtype": str(model.network.dtype).removeprefix("torch."),
        "date": datetime.now(UTC).date().isoformat(),
    }
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "machine": machine,
        "versions": versions(),
        "git": source_commit(),
        "command": command,
        "peak_mib": {"host": host, "device": most},
        "timings": [asdict(timing) for timing in timings],
        "ratios": [asdict(ratio) for ratio in ratios],
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.processor() or platform.machine()


def to_markdown(found: Mapping[str, Any]) -> str:
    """Return a record as two tables, ratios first."""
    where, (host, device) = found["machine"], found["peak_mib"].values()
    on_device = "" if device is None else f" and {device:,.0f} MiB on the device"
    seconds = "{seconds:.3f} ({low:.3f} to {high:.3f})"
    lines = [
        f"`{found['command']}` on {where['date']}: {where['processor']}, {where['cores']} cores,"
        f" {where['threads']} threads, {where['device']}, {where['dtype']}; peak memory"
        f" {host:,.0f} MiB{on_device}.",
        "",
        "| ratio of medians | value | target |",
        "| --- | ---: | --- |",
        *map("| {name} | {value:.2f} | {target} |".format_map, found["ratios"]),
        "",
        "| case | prompts | seconds (quartiles) | tokens/s | forwards per token | agreement |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for timing in found["timings"]:
        tokens, forwards, agreement = timing["outcome"].values()
        per_token = (f / t if t else 0.0 for f, t in zip(forwards, tokens, strict=True))
        cells = [
            f"{timing['case']} | {timing['prompts']} | {seconds.format_map(timing)}",
            f"{timing['tokens_per_second']:.0f}",
            " + ".join(f"{value:.2f}" for value in per_token),
            "" if agreement is None else f"{100 * agreement:.0f} %",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
