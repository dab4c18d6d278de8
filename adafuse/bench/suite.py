"""What `adafuse bench` times: workloads, cases side by side, and the ratios between them."""

import gc
import math
import os
import platform
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from tqdm import tqdm
from transformers import AutoConfig, AutoModelForCausalLM

from adafuse.bench.workloads import (
    Workload,
    chains,
    long_prompts,
    openings,
    translations,
)
from adafuse.decoding.words import Draft
from adafuse.engine.choice import engine_for
from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.models.language_model import LoadedModel
from adafuse.models.placement import Place
from adafuse.models.spec import ModelSpec
from adafuse.models.tokenizers import load_tokenizer
from adafuse.records.result import Result
from adafuse.storage.files import located
from adafuse.storage.provenance import source_commit
from adafuse.tokenization.token_bytes import id_count
from adafuse.version import versions


def random_model(config: str, spec: ModelSpec, seed: int) -> LoadedModel:
    """Return random weights of the shape that a config.json says, with the tokenizer of `spec`."""
    config = located(config)
    if not Path(config).exists():
        raise UserError(f"{config!r} does not exist; give a config.json or its folder")
    try:
        shape = AutoConfig.from_pretrained(config)
    except (OSError, ValueError) as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"{reason}; give a config.json or its folder as shape") from None
    tokenizer = load_tokenizer(spec)
    if shape.get_text_config().vocab_size < id_count(tokenizer):
        raise UserError(f"{config!r} has a vocabulary smaller than the tokenizer {spec.path!r}")
    place = Place.of(spec)
    torch.manual_seed(seed)
    factory: Any = AutoModelForCausalLM
    with torch.device(place.device):
        network = factory.from_config(shape, dtype=place.dtype).eval()
    return LoadedModel(
        name=config,
        tokenizer=tokenizer,
        end_ids={tokenizer.eos_token_id: "tokenizer"},
        network=network,
        context=shape.get_text_config().max_position_embeddings,
    )


@dataclass(frozen=True, slots=True)
class Usage:
    """What one pass over a workload came to: ids written and forwards taken part in, per model.

    `agreement` is the share of rounds in which all models proposed what was committed; None where
    there are no rounds.
    """

    tokens: tuple[int, ...]
    forwards: tuple[int, ...]
    agreement: float | None = None


def decode(
    models: tuple[LoadedModel, ...], work: Workload, batch_size: int, **options: Any
) -> list[Result]:
    """Decode a workload; `options` are those of `Ensemble.generate`."""
    if work.endless:  # they go on after an end token, as `min_new_tokens` makes them
        models = tuple(replace(model, end_ids={}) for model in models)
    return Ensemble(models, (1.0,) * len(models)).generate(
        work.prompts,
        max_new_tokens=work.max_new_tokens,
        stop=work.stop,
        batch_size=batch_size,
        **options,
    )


def outcome(results: Sequence[Result]) -> Usage:
    """Summarise what was decoded."""
    agreed = [each.agreed_by(len(one.tokens)) for one in results for each in one.rounds]
    return Usage(
        tuple(map(sum, zip(*(result.tokens for result in results), strict=True))),
        tuple(map(sum, zip(*(result.forwards for result in results), strict=True))),
        agreed.count(True) / len(agreed) if agreed else None,
    )


def generate(model: LoadedModel, work: Workload, batch_size: int, lengths: Sequence[int]) -> Usage:
    """Let transformers' own greedy `generate` write as many tokens per prompt as `lengths` says.

    Batches are padded on the left, and each is as long as its longest text: that is what users of
    `generate` pay.
    """
    forwards = 0
    for start in range(0, len(work.prompts), batch_size):
        part = slice(start, start + batch_size)
        steps = max(lengths[part])
        if steps:
            rows = [model.prompt_ids(prompt) for prompt in work.prompts[part]]
            _generate_batch(model, rows, steps)
        forwards += steps * len(work.prompts[part])
    return Usage((sum(lengths),), (forwards,))


def _generate_batch(
    model: LoadedModel, rows: Sequence[Sequence[int]], steps: int, **options: Any
) -> None:
    width = max(map(len, rows))
    ids = [[0] * (width - len(row)) + [*row] for row in rows]
    mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
    model.network.generate(  # type: ignore[operator]
        input_ids=torch.tensor(ids, device=model.device),
        attention_mask=torch.tensor(mask, device=model.device),
        max_new_tokens=steps,
        min_new_tokens=steps,
        do_sample=False,
        pad_token_id=0,
        **options,
    )


@dataclass(frozen=True, slots=True)
class Case:
    """A workload, and what is timed; `name` is unique among the cases."""

    name: str
    workload: Workload
    batch_size: int
    run: Callable[[], Usage]


@dataclass(frozen=True, slots=True)
class Timing:
    """Median seconds of a case with quartiles, and the speed of its first model."""

    case: str
    workload: str
    prompts: int
    batch_size: int
    seconds: float
    low: float
    high: float
    outcome: Usage
    tokens_per_second: float


def measure(cases: Sequence[Case], repeats: int, bar: "tqdm[Any] | None" = None) -> list[Timing]:
    """Run each case once unmeasured, then all of them in turn, `repeats` times."""
    bar = bar if bar is not None else tqdm(disable=True)
    bar.reset(total=(repeats + 1) * len(cases))
    seconds: dict[str, list[float]] = {case.name: [] for case in cases}
    outcomes: dict[str, Usage] = {}
    for turn, case in product(range(repeats + 1), cases):
        bar.set_description(
            f"{turn} of {repeats}: {case.name}" if turn else f"warming up {case.name}"
        )
        gc.collect()
        start = time.perf_counter()
        outcomes[case.name] = case.run()  # its last result was read from the device
        elapsed = time.perf_counter() - start
        if turn:
            seconds[case.name].append(elapsed)
        speed = outcomes[case.name].tokens[0] / elapsed
        bar.set_postfix_str(f"{speed:.1f} tokens/s", refresh=False)
        bar.update()
    return [_timing(case, seconds[case.name], outcomes[case.name]) for case in cases]


def _timing(case: Case, repeats: list[float], done: Usage) -> Timing:
    low, middle, high = quantiles(repeats, method="inclusive") if len(repeats) > 1 else repeats * 3
    about = case.name, case.workload.name, len(case.workload.prompts), case.batch_size
    return Timing(*about, middle, low, high, done, done.tokens[0] / middle)


COPIED = {"cuda": 1 << 30, "cpu": 1 << 26}
"""Bytes of a copy: more than the caches hold."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """One number that says what something costs in terms of something else; `target` bounds it."""

    name: str
    value: float
    target: str


STEPS = (1, 4, 16, 64)
"""Tokens of a forward."""
GENERATED = {"": {}, ", static cache": {"cache_implementation": "static"}}
"""Ways to call `generate`; transformers compiles the second where a GPU is."""


def steps(
    model: LoadedModel, repeats: int = 50, wanted: Callable[[str], bool] = lambda name: True
) -> list[Ratio]:
    """Return the milliseconds of forwards at batch 1 after a short prompt, all of them medians.

    Weights are read as fast as the device copies, which counts reading and writing.
    """
    size = COPIED.get(model.device.type, COPIED["cpu"])
    source = torch.ones(size, dtype=torch.uint8, device=model.device)
    copy = partial(torch.empty_like(source).copy_, source)
    bandwidth = 2 * size / _median_seconds(copy, model.device, repeats)
    weights = sum(p.numel() * p.element_size() for p in model.network.parameters())
    least = weights / bandwidth
    ratios = [Ratio(f"ms, {model.name}: reading the weights once", 1000 * least, "")]
    for count in STEPS:
        target = f"on a GPU at most {1350 * least:.2f}" if count == 1 else ""
        name = f"ms, {model.name}: tokens in a forward: {count}"
        if not wanted(name):
            continue
        ratios.append(Ratio(name, 1000 * _step(model, count, repeats), target))
    prompt = [index % model.vocabulary for index in range(3, 35)]
    for how, options in GENERATED.items():
        name = f"ms, {model.name}: generate{how}, a token"
        if not wanted(name):
            continue
        run = partial(_generate_batch, model, [prompt], CHAIN, **options)
        ms = 1000 * _median_seconds(run, model.device, max(1, repeats // 10)) / CHAIN
        ratios.append(Ratio(name, ms, ""))
    return ratios if len(ratios) > 1 or wanted(ratios[0].name) else []


def _step(model: LoadedModel, count: int, repeats: int) -> float:
    """Return the seconds of a forward of a chain of `count` tokens."""
    engine = engine_for(model, "tree", top=2, rows=1)
    sequence = engine.open([index % model.vocabulary for index in range(3, 35)])
    engine.evaluate([sequence.root])

    def step() -> None:
        sequence.root.children.clear()
        sequence.used = len(sequence.ids)
        engine.evaluate(sequence.root.chain(range(5, 5 + count)))

    return _median_seconds(step, model.device, repeats)


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


BRANCHINGS = {1: "at most 0.75", 3: "at most 1.6"}
"""Values of B, and what they may cost at batch 1 in terms of the models alone."""
DRAFTS: dict[str, tuple[Draft, ...]] = {
    "none": (),
    "own": ("own",),
    "others": ("others",),
    "copies": ("copies",),
    "all but ahead": ("own", "others", "copies"),
}
"""What is guessed in the cases that show what each kind of draft saves."""
TOGETHER = {"unite": "at most 0.70", "gac": "at most 0.70"}
"""Methods of which every token is a round, and their forwards in terms of tokens."""
CHAIN = 48
"""Ids to write after a long prompt: about a chain of thought."""


@dataclass(frozen=True)
class Suite:
    """Sizes of a run, the options of `adafuse` besides B, and the other methods.

    Of the cases, only those are run whose name contains one of `only`, if there are any.
    """

    models: tuple[LoadedModel, ...]
    prompts: int
    batch_sizes: tuple[int, ...]
    long_prompt: int
    long_output: int
    options: Mapping[str, Any]
    others: Sequence[str]
    new_tokens: int = 128
    only: Sequence[str] = ()

    def cases(self) -> list[Case]:
        """Return the cases; those of `generate` write as many tokens as the fused ones wrote."""
        work = chains(self.prompts, self.new_tokens)
        cases: list[Case] = []
        for size, branching in product(self.batch_sizes, BRANCHINGS):
            cases += self._pair(f"B {branching}, batch {size}", work, size, branching)
        sentences = translations(self.prompts, self.new_tokens)
        cases += self._pair("translations, batch 1", sentences, 1, branching=1)
        for name, kinds in DRAFTS.items():
            cases.append(
                self._case(f"adafuse, drafts: {name}", work, 1, **self._plain, drafts=kinds)
            )
        for method in TOGETHER:
            cases.append(self._case(f"{method}, batch 1", work, 1, method=method))
            kinds = DRAFTS["all but ahead"]
            name = f"{method}, drafts: all but ahead"
            cases.append(self._case(name, work, 1, method=method, drafts=kinds))
        others = [self._case(f"{name}, batch 8", work, 8, method=name) for name in self.others]
        return [each for each in [*cases, *self._long(), *others] if self.wanted(each.name)]

    def wanted(self, name: str) -> bool:
        """Return whether something of this name is to be measured."""
        return not self.only or any(part in name for part in self.only)

    @property
    def _plain(self) -> dict[str, Any]:
        return {**self.options, "branching": 1}

    def _pair(self, label: str, work: Workload, size: int, branching: int) -> Iterator[Case]:
        results: list[Result] = []

        def fused() -> Usage:
            results[:] = decode(self.models, work, size, **self.options, branching=branching)
            return outcome(results)

        def alone(number: int) -> Usage:
            if not results:
                fused()
            lengths = [result.tokens[number] for result in results]
            return generate(self.models[number], work, size, lengths)

        yield Case(f"adafuse {label}", work, size, fused)
        for number in range(len(self.models)):
            yield Case(f"generate {number + 1} for {label}", work, size, partial(alone, number))

    def _long(self) -> Iterator[Case]:
        options = self._plain
        work = long_prompts(2, self.long_prompt, self.models[0], CHAIN)
        yield self._case(f"adafuse, {work.name}", work, 1, **options)
        yield self._case(f"reference, {work.name}", work, 1, **options, engine="reference")
        sizes = self.long_output // 2, self.long_output
        names = {tokens: f"adafuse, {tokens}-token outputs" for tokens in sizes}
        if not any(map(self.wanted, names.values())):
            return
        # After an answer models agree less than in it. What is written after these texts is past
        # that, so that its second half is like the first and costs differ by length alone.
        opened = openings(4, self.long_output)
        results = decode(self.models, opened, 4, **options)
        prompts = zip(opened.prompts, results, strict=True)
        texts = tuple(prompt + result.text for prompt, result in prompts)
        for tokens, name in names.items():
            work = Workload(f"{tokens}-token outputs", texts, tokens, endless=True)
            yield self._case(name, work, 1, **options)

    def _case(self, name: str, work: Workload, size: int, **options: Any) -> Case:
        run = partial(decode, self.models, work, size, **options)
        return Case(name, work, size, lambda: outcome(run()))

    def ratios(self, timings: Sequence[Timing]) -> list[Ratio]:
        """Return the ratios that docs/performance.md promises, of the cases that were run."""
        seconds = defaultdict(lambda: math.nan, {each.case: each.seconds for each in timings})
        outcomes = {each.case: each.outcome for each in timings}

        def alone(label: str, bound: str) -> Ratio:
            numbers = range(1, len(self.models) + 1)
            generate = sum(seconds[f"generate {number} for {label}"] for number in numbers)
            value = seconds[f"adafuse {label}"] / generate
            return Ratio(f"adafuse / generate of all, {label}", value, bound)

        def forwards(case: str, bound: str = "") -> Ratio:
            done = outcomes.get(case)
            value = sum(done.forwards) / sum(done.tokens) if done else math.nan
            return Ratio(f"forwards / tokens of all models, {case}", value, bound)

        speed_ratios = [
            alone(
                f"B {branching}, batch {size}",
                bound if size == 1 else "at most 1.25" if (branching, size) == (1, 32) else "",
            )
            for size, (branching, bound) in product(self.batch_sizes, BRANCHINGS.items())
        ]
        first, last = (f"adafuse B 1, batch {self.batch_sizes[end]}" for end in (0, -1))
        throughput = "at least 15" if self.models[0].device.type == "cuda" else "at least 8"
        half, whole = (f"{n}-token outputs" for n in (self.long_output // 2, self.long_output))
        long = f"{self.long_prompt}-token prompts"
        engines = seconds[f"reference, {long}"] / seconds[f"adafuse, {long}"]
        length = seconds[f"adafuse, {whole}"] / seconds[f"adafuse, {half}"]
        ratios = [
            *speed_ratios,
            alone("translations, batch 1", "at most 1.30"),
            forwards(first, "at most 0.58"),
            *(forwards(f"adafuse, drafts: {name}") for name in DRAFTS),
            forwards("adafuse translations, batch 1", "at most 1.10"),
            *(forwards(f"{method}, batch 1", bound) for method, bound in TOGETHER.items()),
            *(forwards(f"{method}, drafts: all but ahead") for method in TOGETHER),
            Ratio(f"throughput, {last} / {first}", seconds[first] / seconds[last], throughput),
            Ratio(f"reference engine / tree engine, {long}", engines, "at least 10"),
            Ratio(f"{whole} / {half}", length, "at most 2.2"),
        ]
        return [ratio for ratio in ratios if not math.isnan(ratio.value)]


def median_margin(models: tuple[LoadedModel, ...]) -> float:
    """Return a tau at which rounds of 1, 2 and 3 words occur: the median start-of-word margin.

    Models with random weights are never confident by the threshold of trained ones.
    """
    rounds = [each for result in decode(models, chains(8), 8, tau=2.0) for each in result.rounds]
    return median(margin for each in rounds for row in each.margins for margin in row)


def record(
    model: LoadedModel, command: str, timings: Sequence[Timing], ratios: Sequence[Ratio]
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


def to_markdown(measured: Mapping[str, Any]) -> str:
    """Return a record as two tables, ratios first."""
    where, (host, device) = measured["machine"], measured["peak_mib"].values()
    on_device = "" if device is None else f" and {device:,.0f} MiB on the device"
    seconds = "{seconds:.3f} ({low:.3f} to {high:.3f})"
    lines = [
        f"`{measured['command']}` on {where['date']}: {where['processor']}, {where['cores']} cores,"
        f" {where['threads']} threads, {where['device']}, {where['dtype']}; peak memory"
        f" {host:,.0f} MiB{on_device}.",
        "",
        "| ratio of medians | value | target |",
        "| --- | ---: | --- |",
        *map("| {name} | {value:.2f} | {target} |".format_map, measured["ratios"]),
        "",
        "| case | prompts | seconds (quartiles) | tokens/s | forwards per token | agreement |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for timing in measured["timings"]:
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
