"""`adafuse doctor`: what would go wrong here, and with some models."""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from adafuse.cli.errors import FAILED
from adafuse.cli.options import (
    DECODING,
    AsJson,
    BatchSize,
    Chat,
    Device,
    Dtype,
    MaxNewTokens,
    Pickled,
    Quantization,
    Revisions,
    SomeModels,
    Trusted,
    loading,
    number_or_name,
    option,
)
from adafuse.cli.output import echo_json, one_line

if TYPE_CHECKING:
    from adafuse.models.doctor import Batch
    from adafuse.models.findings import DeviceLoad, Installation, ModelFacts, Overlap, Report

_GIB = 1 << 30


def doctor(
    model: SomeModels = None,
    chat: Chat = False,
    device: Device = None,
    dtype: Dtype = "auto",
    quantization: Quantization = None,
    revision: Revisions = None,
    trust_remote_code: Trusted = None,
    allow_pickle: Pickled = None,
    batch_size: BatchSize = "8",
    max_new_tokens: MaxNewTokens = 256,
    prompt_tokens: Annotated[
        int, option("Tokens of the longest prompt.", "N", DECODING, min=1)
    ] = 512,
    as_json: AsJson = False,
) -> None:
    """Check the installation, and what would go wrong with some models.

    Weights are not loaded; memory is estimated. Exit status 1 says that
    something would go wrong; warnings leave it at 0.
    """
    batch = _batch(batch_size, prompt_tokens, max_new_tokens)
    models = list(model or [])
    loaded = loading(
        models, revision=revision, device=device, dtype=dtype, chat=chat, quantization=quantization,
        trust_remote_code=trust_remote_code, allow_pickle=allow_pickle,
    )  # fmt: skip
    from adafuse.models.doctor import examination
    from adafuse.models.placement import sources

    settings = {"revisions": None, "quantization": None, **loaded}
    plain = {**settings, "device": "cpu", "dtype": "auto", "quantization": None}
    wanted, anyway = (partial(sources, models, **each) for each in (settings, plain))
    report = examination(wanted, anyway, batch)
    if as_json:
        echo_json({**asdict(report), "healthy": report.healthy})
    else:
        _print(report)
    raise typer.Exit(0 if report.healthy else FAILED)


def _batch(size: str, prompt_tokens: int, max_new_tokens: int) -> "Batch":
    from adafuse.decoding.limits import Settings
    from adafuse.decoding.options import parse
    from adafuse.models.doctor import Batch

    given = {"batch_size": number_or_name(size), "max_new_tokens": max_new_tokens}
    settings = parse(Settings, given, "doctor")
    rows = None if settings.batch_size == "auto" else settings.batch_size
    return Batch(rows, prompt_tokens, settings.max_new_tokens)


def _print(report: "Report") -> None:
    for line in _installation(report.installation):
        typer.echo(line)
    for facts in report.models:
        typer.echo("\n".join(["", *_model(facts)]))
    for each in report.overlaps:
        typer.echo("\n".join(["", *_overlap(each)]))
    for load in report.loads:
        typer.echo("\n".join(["", *_load(load)]))
    typer.echo("")
    for finding in sorted(report.findings, key=lambda each: not each.problem):
        kind, color = ("problem", "red") if finding.problem else ("warning", "yellow")
        typer.echo(typer.style(f"{kind}: ", fg=color, bold=True) + one_line(finding.sentence))
    problems = sum(finding.problem for finding in report.findings)
    warnings = len(report.findings) - problems
    typer.echo(f"{_count(problems, 'problem')}, {_count(warnings, 'warning')}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _installation(found: "Installation") -> Iterator[str]:
    yield f"adafuse {found.adafuse}, Python {found.python}"
    from adafuse.models.installation import PACKAGES

    for extra in dict.fromkeys(PACKAGES.values()):
        names = [name for name, brought_by in PACKAGES.items() if brought_by == extra]
        versions = (f"{name} {found.packages[name] or 'not installed'}" for name in names)
        yield f"  {f'[{extra}] ' if extra else ''}{', '.join(versions)}"
    yield f"  CUDA: {found.cuda or 'torch is built without it'}"
    for device in found.devices:
        yield f"  {device.name} ({device.kind}): {device.free / _GIB:.1f} GiB free"
    yield f"  snakemake: {found.snakemake or 'not found'}"
    yield f"  sbatch (Slurm): {found.sbatch or 'not found'}"


def _model(facts: "ModelFacts") -> Iterator[str]:
    yield f"model {one_line(facts.name)} ({facts.architecture})"
    yield f"  start token: {facts.start or 'none'}; end tokens: {' '.join(facts.ends)}"
    template = "a chat template" if facts.chat_template else "no chat template"
    limit = f"{facts.context} positions" if facts.context else "no limit of positions"
    yield f"  {limit}; {template}"
    exact = "each stands for certain bytes" if facts.surfaces else "bytes unknown"
    yield f"  {facts.vocabulary} tokens ({facts.rows} rows), {exact}"
    odd = ", ".join(map(repr, facts.odd_spans))
    yield f"  foreign words come back {'changed: ' + odd if odd else 'as they were written'}"
    size = "not here" if facts.weights is None else f"{facts.weights / _GIB:.3f} GiB"
    cache = "unknown" if facts.cache is None else f"{facts.cache / 1024:.1f} KiB"
    yield f"  weights as {facts.dtype} on {facts.device}: {size}; cache of a token: {cache}"


def _overlap(each: "Overlap") -> Iterator[str]:
    first, second = each.models
    yield f"{each.shared} tokens in common"
    yield f"  {each.percent[0]:.1f} % of {one_line(first)}"
    yield f"  {each.percent[1]:.1f} % of {one_line(second)}"


def _load(load: "DeviceLoad") -> Iterator[str]:
    yield f"memory on {load.device} (estimated): {load.free / _GIB:.2f} GiB free"
    rows = f"{load.rows} examples at a time take {load.rows * load.per_row / _GIB:.3f} GiB"
    yield f"  weights take {load.weights / _GIB:.3f} GiB; {rows}; {load.fits} have room"
