"""`adafuse doctor`: what would go wrong here, and with some models."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from adafuse.cli.errors import FAILED
from adafuse.cli.options import DECODING, AsJson, BatchSize, MaxNewTokens, option, with_models
from adafuse.cli.output import counted, echo_json
from adafuse.errors import UserError
from adafuse.models.spec import ModelSpec
from adafuse.records.views import one_line

if TYPE_CHECKING:
    from adafuse.models.doctor import ModelFacts, Report
    from adafuse.models.fit import Fit
    from adafuse.models.installation import Installation
    from adafuse.tokenization.thoughts import Thinking

FIT = "Whether models fit"


@with_models
def doctor(
    batch_size: BatchSize = "8",
    max_new_tokens: MaxNewTokens = 256,
    prompt_tokens: Annotated[
        int, option("Tokens of the longest prompt.", "N", DECODING, min=1)
    ] = 512,
    fit: Annotated[
        bool, option("Only say how the models fit into memory, by their configs.", "", FIT)
    ] = False,
    gpus: Annotated[
        str | None, option("The GPUs of another machine, for --fit.", "4x80GiB", FIT)
    ] = None,
    as_json: AsJson = False,
    *,
    models: Sequence[ModelSpec] = (),
) -> None:
    """Check the installation, and models without loading their weights.

    Memory is estimated. --fit needs no tokenizers and no weights. Exit status: 0
    no problem was found (there may be warnings), 1 a problem was found.
    """
    from adafuse.decoding.words import Settings
    from adafuse.options import parse

    parse(Settings, {"batch_size": batch_size, "max_new_tokens": max_new_tokens}, "doctor")
    from adafuse.models.doctor import Load, examination  # imports torch

    rows = None if batch_size == "auto" else batch_size
    if fit:
        raise typer.Exit(_fit(models, gpus, rows, prompt_tokens + max_new_tokens, as_json))
    if gpus is not None:
        raise UserError("--gpus names the GPUs of another machine for --fit; add it")
    report = examination(models, Load(rows, prompt_tokens, max_new_tokens))
    if as_json:
        echo_json({**asdict(report), "healthy": report.healthy})
    else:
        typer.echo("\n".join(_lines(report)))
    raise typer.Exit(0 if report.healthy else FAILED)


def _lines(report: "Report") -> Iterator[str]:
    yield from _installation(report.installation)
    for facts in report.models:
        yield from ("", *_model(facts))
    for pair in report.overlaps:
        yield from ("", f"{pair.shared} tokens in common")
        for name, percent in zip(pair.models, pair.percent, strict=True):
            yield f"  {percent:.1f} % of {one_line(name)}"
    for load in report.loads:
        yield from ("", f"memory on {load.device} (estimated): {_gib(load.free, 2)} free")
        rows = f"{load.rows} examples at a time take {_gib(load.rows * load.per_row)}"
        yield f"  weights take {_gib(load.weights)}; {rows}; {load.fits} have room"
    yield ""
    for finding in sorted(report.findings, key=lambda finding: not finding.problem):
        kind, color = ("problem", "red") if finding.problem else ("warning", "yellow")
        yield typer.style(f"{kind}: ", fg=color, bold=True) + one_line(finding.sentence)
    problems = sum(finding.problem for finding in report.findings)
    warnings = len(report.findings) - problems
    yield f"{counted(problems, 'problem')}, {counted(warnings, 'warning')}"


def _fit(
    models: Sequence[ModelSpec], gpus: str | None, rows: int | None, longest: int, as_json: bool
) -> int:
    """Print how models fit; return the exit status."""
    from adafuse.models import fit as fitting

    if not any(spec.server is None for spec in models):
        raise UserError("--fit needs models that are loaded; name them with --model")
    sizes = None if gpus is None else fitting.gpus_named(gpus)
    found = fitting.fit(models, sizes, rows, longest)
    if as_json:
        echo_json(asdict(found))
    else:
        typer.echo("\n".join(_fit_lines(found, longest)))
    return 0 if found.where else FAILED


def _fit_lines(found: "Fit", longest: int) -> Iterator[str]:
    for need in found.needs:
        forms = ", ".join(f"{form} {_gib(size)}" for form, size in need.weights.items())
        yield f"model {one_line(need.model)}: {forms}"
        without = "" if need.cached else " (without keys and values, which are not estimated)"
        most = ", the most of its config" * (need.tokens < longest)
        yield f"  an example of {need.tokens} tokens{most}: {_gib(need.row)}{without}"
    for size, alike in groupby(found.rooms, key=found.rooms.__getitem__):
        yield f"{', '.join(alike)}: {_gib(size, 1)} may be taken"
    for need, form, names in zip(found.needs, found.forms, found.where or (), strict=False):
        yield f"  {one_line(need.model)} ({form or need.dtype}) on {'+'.join(names)}"
    yield found.sentence


def _gib(size: float, digits: int = 3) -> str:
    return f"{size / (1 << 30):.{digits}f} GiB"


def _installation(here: "Installation") -> Iterator[str]:
    yield f"adafuse {here.adafuse}, Python {here.python}"
    from adafuse.models.installation import PACKAGES

    for extra in dict.fromkeys(PACKAGES.values()):
        names = [name for name, brought_by in PACKAGES.items() if brought_by == extra]
        versions = (f"{name} {here.packages[name] or 'not installed'}" for name in names)
        yield f"  {f'[{extra}] ' if extra else ''}{', '.join(versions)}"
    yield f"  CUDA: {here.cuda or 'torch is built without it'}"
    for device in here.devices:
        yield f"  {device.name} ({device.kind}): {_gib(device.free, 1)} free"
    yield f"  snakemake: {here.snakemake or 'not found'}"
    yield f"  sbatch (Slurm): {here.sbatch or 'not found'}"


def _thinking(of: "Thinking") -> str:
    where = f"from {one_line(of.begin)} to {one_line(of.end)}"
    if of.thinks is False:
        return f"does not think before it answers; thoughts would lie {where}"
    off = f"switched off by chat_template_kwargs {{{of.switch}: false}}"
    how = off if of.switch else "its chat template has no variable that switches that off"
    if of.thinks is None:
        return f"may think before it answers, {where}: its chat template does not say so"
    return f"thinks before it answers, {where}; {how}"


def _model(facts: "ModelFacts") -> Iterator[str]:
    yield f"model {one_line(facts.name)} ({facts.architecture})"
    ends = ", ".join(f"{token} ({source})" for token, source in facts.ends.items())
    others = f", and {counted(n, 'other special token')}" if (n := len(facts.other_ends)) else ""
    yield f"  start token: {facts.start or 'none'}; end tokens: {ends}{others}"
    template = "a chat template" if facts.chat_template else "no chat template"
    limit = f"{facts.context} positions" if facts.context else "no limit of positions"
    yield f"  {limit}; {template}"
    if facts.thoughts:
        yield f"  {_thinking(facts.thoughts)}"
    exact = "each stands for certain bytes" if facts.token_bytes else "bytes unknown"
    yield f"  {facts.vocabulary} tokens ({facts.rows} rows), {exact}"
    odd = ", ".join(map(repr, facts.odd_spans))
    yield f"  foreign words come back {'changed: ' + odd if odd else 'as they were written'}"
    if facts.served:
        yield f"  on the server {facts.device}"
        yield from (f"    {line}" for line in facts.served)
        return
    size = "not here" if facts.weights is None else _gib(facts.weights)
    cache = "unknown" if facts.cache is None else f"{facts.cache / 1024:.1f} KiB"
    yield f"  weights as {facts.dtype} on {facts.device}: {size}; cache of a token: {cache}"
