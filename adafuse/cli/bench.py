"""Models of a given shape with random weights: shapes can be timed without a download."""

import json
import os
import platform
import resource
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import torch
import typer
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from adafuse.cli.bench_suite import Ratio, Timing
from adafuse.cli.options import MODELS, AsJson, Device, Dtype, SomeModels, option
from adafuse.errors import UserError
from adafuse.models.language_model import LanguageModel
from adafuse.workflow.provenance import source_commit, versions

if TYPE_CHECKING:
    from adafuse.cli.bench_suite import Suite


def random_model(
    config: str, tokenizer: str, *, device: torch.device, dtype: torch.dtype, seed: int
) -> LanguageModel:
    """Return a model of the shape of a configuration file over the tokenizer of a folder.

    Raises:
        UserError: no such configuration, or fewer rows in it than the tokenizer has ids.
    """
    if not Path(config).exists():
        raise UserError(f"{config!r} does not exist; give a config.json or its folder")
    shape = AutoConfig.from_pretrained(config)
    texts = AutoTokenizer.from_pretrained(tokenizer)
    if shape.get_text_config().vocab_size < len(texts):
        raise UserError(f"{config!r} has a vocabulary smaller than the tokenizer {tokenizer!r}")
    torch.manual_seed(seed)
    with torch.device(device):
        factory: Any = AutoModelForCausalLM
        network = factory.from_config(shape, dtype=dtype).eval()
    ends = frozenset({texts.eos_token_id})
    return LanguageModel(
        name=config,
        network=network,
        tokenizer=texts,
        end_ids=ends,
        stop_ids=ends,
        context=shape.get_text_config().max_position_embeddings,
    )


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the figures were measured."""

    processor: str
    cores: int
    threads: int
    device: str
    dtype: str
    date: str


def machine(model: LanguageModel) -> Machine:
    """Describe this machine and where the models are."""
    device = model.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        device=name,
        dtype=str(model.network.dtype).removeprefix("torch."),
        date=datetime.now(UTC).date().isoformat(),
    )


@dataclass(frozen=True, slots=True)
class Peak:
    """The most memory that the process had, in MiB; `device` of a CUDA device, else None."""

    host: float
    device: float | None = None


def peak(model: LanguageModel) -> Peak:
    """Return the most memory that was used so far."""
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if model.device.type != "cuda":
        return Peak(host)
    return Peak(host, torch.cuda.max_memory_allocated(model.device) / (1 << 20))


def to_json(
    where: Machine, command: str, timings: Sequence[Timing], ratios: Sequence[Ratio], most: Peak
) -> str:
    """Return everything that was measured."""
    values = {
        "machine": asdict(where),
        "versions": versions(),
        "git": asdict(source_commit()),
        "command": command,
        "peak_mib": asdict(most),
        "timings": [{**asdict(t), "tokens_per_second": t.tokens_per_second} for t in timings],
        "ratios": [asdict(ratio) for ratio in ratios],
    }
    return json.dumps(values, indent=2) + "\n"


def to_markdown(
    where: Machine, command: str, timings: Sequence[Timing], ratios: Sequence[Ratio], most: Peak
) -> str:
    """Return the same as two tables, ratios first."""
    on_device = "" if most.device is None else f" and {most.device:,.0f} MiB on the device"
    lines = [
        f"`{command}` on {where.date}: {where.processor}, {where.cores} cores, {where.threads}"
        f" threads, {where.device}, {where.dtype}; peak memory {most.host:,.0f} MiB{on_device}.",
        "",
        "| ratio of medians | value | target |",
        "| --- | ---: | --- |",
        *(f"| {ratio.name} | {ratio.value:.2f} | {ratio.target} |" for ratio in ratios),
        "",
        "| case | prompts | seconds (quartiles) | tokens/s | forwards per token | agreement |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        *map(_row, timings),
    ]
    return "\n".join(lines) + "\n"


def _row(timing: Timing) -> str:
    done = timing.outcome
    per_token = (f / t if t else 0.0 for f, t in zip(done.forwards, done.tokens, strict=True))
    cells = [
        timing.case,
        str(timing.prompts),
        f"{timing.seconds:.3f} ({timing.low:.3f} to {timing.high:.3f})",
        f"{timing.tokens_per_second:.0f}",
        " + ".join(f"{value:.2f}" for value in per_token),
        "" if done.agreement is None else f"{100 * done.agreement:.0f} %",
    ]
    return f"| {' | '.join(cells)} |"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


TOY = ("mistral", "llama")


def bench(
    model: SomeModels = None,
    device: Device = None,
    dtype: Dtype = "auto",
    shape: Annotated[
        list[str] | None,
        option(
            "A config.json: random weights of that shape over --model's tokenizer.", "FILE", MODELS
        ),
    ] = None,
    out: Annotated[Path, option("Folder for bench.json and bench.md.", "FOLDER")] = Path(
        "results/bench"
    ),
    as_json: AsJson = False,
    repeats: Annotated[int, option("Passes over every case.", "N", min=1)] = 5,
    chains: Annotated[
        int, option("Prompts that ask for a chain of thought.", "N", None, "--chains", min=1)
    ] = 96,
    tau: Annotated[
        float | None,
        option("Margin threshold; 0.7, or the median margin of random weights.", "X"),
    ] = None,
    threads: Annotated[int, option("CPU threads; 0 is one per core.", "N", min=0)] = 0,
    others: Annotated[bool, option("Time all other methods, too.")] = True,
) -> None:
    """Time fused decoding beside what the models cost alone.

    Without --model, it times the toy models. Figures are medians of repeats
    that take turns.
    """
    from adafuse.files import check_writable, write_text

    check_writable(out / "bench.json")
    import torch

    from adafuse.cli.bench_suite import floor

    pass  # regroup
    from adafuse.cli.bench_suite import Suite, median_margin

    torch.set_num_threads(threads or os.cpu_count() or 1)
    models = _models(model or _toy(), shape or [], device or ["auto"], dtype)
    if tau is None:
        tau = median_margin(models) if shape else 0.7
    suite = Suite(models, chains, (1, 8, 32), 1500, 256, {"tau": tau}, _others() if others else {})
    floors = [floor(each) for each in models if each.device.type == "cuda"]
    timings = _timed(suite, repeats)
    where, ratios, most = machine(models[0]), suite.ratios(timings, floors), peak(models[0])
    command = shlex.join(["adafuse", *sys.argv[1:]])
    told = to_json(where, command, timings, ratios, most)
    text = to_markdown(where, command, timings, ratios, most)
    write_text(out / "bench.json", told)
    write_text(out / "bench.md", text)
    typer.echo(told if as_json else text, nl=False)


def _timed(suite: "Suite", repeats: int) -> "list[Timing]":
    from tqdm import tqdm

    from adafuse.cli.bench_suite import measure

    with tqdm(desc="first runs, not timed", disable=None, unit="case") as bar:
        cases = suite.cases()
        bar.reset(total=(repeats + 1) * len(cases))

        def progress(name: str, tokens_per_second: float | None) -> None:
            if tokens_per_second is not None:
                bar.set_postfix_str(f"{tokens_per_second:.1f} tokens/s", refresh=False)
            bar.set_description(name)
            bar.update()

        return measure(cases, repeats, progress)


def _toy() -> list[str]:
    """Return the toy pair, named from here where that is shorter."""
    import adafuse.toy

    folder = Path(adafuse.toy.__file__).parent / "models"
    paths = [folder / name for name in TOY]
    here = Path.cwd()
    return [str(p.relative_to(here) if p.is_relative_to(here) else p) for p in paths]


def _models(
    paths: Sequence[str], shapes: Sequence[str], device: Sequence[str], dtype: str
) -> "tuple[LanguageModel, ...]":
    pass  # regroup
    from adafuse.ensemble import Ensemble
    from adafuse.models.placement import dtype_of, placements

    if not shapes:
        return Ensemble.from_pretrained(paths, device=device, dtype=dtype).models
    if len(shapes) != len(paths):
        raise UserError(f"{len(shapes)} shapes for {len(paths)} models; give one per model")
    places = placements(device, len(shapes))
    for name, place in zip(list(device) * len(places), places, strict=False):
        if place.spread:
            raise UserError(f"device {name!r} is not for random weights; name one device")
    return tuple(
        random_model(shape, path, device=place.first, dtype=dtype_of(dtype, place.first), seed=seed)
        for seed, (shape, path, place) in enumerate(zip(shapes, paths, places, strict=True))
    )


def _others() -> dict[str, dict[str, object]]:
    """Return every method that runs on several models as it is; checkpoints are not at hand."""
    from adafuse.methods import METHODS

    left_out = ("adafuse", "single", "llm_blender")
    return {name: {} for name in METHODS if name not in left_out}
