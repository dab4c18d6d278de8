"""`adafuse score` and `adafuse audit`: check files of predictions and rows, without any model."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from adafuse.benchmarks.rows import Fields, Row, copied, joined, read_rows
from adafuse.cli.errors import FAILED
from adafuse.cli.options import (
    AsJson,
    FieldNames,
    ThreadsOption,
    fields_of,
    option,
    scorer_names,
    with_plugins,
)
from adafuse.cli.output import echo_json, json_text
from adafuse.errors import UserError, nearest
from adafuse.metrics.predictions import read_predictions
from adafuse.metrics.registry import BENCHMARKS, SCORERS, metric_named, scorer_named, unit
from adafuse.metrics.scorer import PROTOCOLS

if TYPE_CHECKING:
    from adafuse.metrics.compare import Comparison
    from adafuse.metrics.score import Score, ScoredRun

Benchmark = Annotated[str, option(f"{', '.join(BENCHMARKS)}.", "NAME", values=list(BENCHMARKS))]
PREDICTIONS = option('JSON lines or CSV: {"id" or "question", "text"}; or a Parquet trace.', "FILE")
Predictions = Annotated[Path, PREDICTIONS]
References = Annotated[
    Path, option('JSON lines, CSV or Parquet: {"question", "answer", "id"}.', "FILE")
]
ScorerName = Annotated[
    str | None,
    option(
        "Scorer of a benchmark with another name: nq, squad, translation, ...",
        "NAME",
        autocompletion=scorer_names,
    ),
]
Protocol = Annotated[str, option("strict or published.", "NAME", values=PROTOCOLS)]


def read_files(
    benchmark: str,
    predictions: Sequence[Path],
    references: Path,
    scorer: str | None,
    fields: Fields,
) -> tuple[str, tuple[Row, ...], list[list[dict[str, Any]]]]:
    """Read all files; return the scorer, the rows, and the predictions matched with them."""
    if scorer is not None:
        scorer_named(scorer, "--scorer")
    elif benchmark not in BENCHMARKS and benchmark not in SCORERS:
        raise UserError(
            f"unknown benchmark {benchmark!r}; known are: {', '.join(BENCHMARKS)}; to score"
            f" any other, name its scorer in --benchmark or --scorer: {', '.join(SCORERS)}"
            f"{nearest(benchmark, [*BENCHMARKS, *SCORERS])}"
        )
    rows = read_rows(references, fields=fields)
    copies = copied([(row.question, row.answers) for row in rows], str(references))
    accepted = {row.id: row.answers for row in rows}
    for message in filter(None, [copies, joined(accepted, str(references))]):
        typer.echo(f"warning: {message}", err=True)
    named = benchmark if scorer is not None or benchmark in BENCHMARKS else None
    texts = [read_predictions(file, rows, benchmark=named) for file in predictions]
    return scorer or BENCHMARKS.get(benchmark, benchmark), rows, texts


@with_plugins
def score(
    benchmark: Benchmark,
    predictions: Predictions,
    references: References,
    protocol: Protocol = "strict",
    out: Annotated[Path | None, option("The JSON file to write.", "FILE")] = None,
    as_json: AsJson = False,
    exclude: Annotated[
        Path | None, option("Rows that strict leaves out, one id or question per line.", "FILE")
    ] = None,
    scorer: ScorerName = None,
    field: FieldNames = None,
    spm_sha256: Annotated[
        str | None, option("Required SHA-256 of the SentencePiece model.", "SHA256")
    ] = None,
    bertscore: Annotated[
        str | None, option("Also BERTScore F1, for answers in this language.", "en, de, ...")
    ] = None,
    against: Annotated[
        Path | None, option("Predictions of the same rows that these are tested against.", "FILE")
    ] = None,
    threads: ThreadsOption = "auto",
) -> None:
    """Score predictions against references, with 95 % intervals (accuracies in percent)."""
    from adafuse.metrics.predictions import read_exclusions
    from adafuse.metrics.registry import check_protocol
    from adafuse.metrics.score import evaluate
    from adafuse.metrics.scorer import PUBLISHED
    from adafuse.metrics.translation import require_model
    from adafuse.storage.files import check_writable, write_text

    check_protocol(protocol)
    if out is not None:
        check_writable(out, predictions, references, exclude, against)
    files = [predictions] if against is None else [predictions, against]
    runs = _names(files)
    name, rows, texts = read_files(benchmark, files, references, scorer, fields_of(field))
    if spm_sha256 is not None:
        require_model(spm_sha256)
    excluded = read_exclusions(exclude, rows) if exclude is not None else frozenset()
    if bertscore is not None:
        from adafuse.models.memory import use_threads

        use_threads(threads)
    how: Any = {"benchmark": benchmark, "exclude": excluded, "bertscore": bertscore}
    scored = [
        evaluate(rows, each, name, protocol, run=run, **how)
        for run, each in zip(runs, texts, strict=True)
    ]
    scores, tests = [each.score for each in scored], _tests(scored)
    found = {"scores": scores, "comparison": tests[0]} if tests else scores[0]
    if out is not None:
        write_text(out, json_text(found, indent=2) + "\n")
    if as_json:
        echo_json(found)
        return
    for each in scores:
        _print(each, kept=len(excluded) if protocol == PUBLISHED else 0, named=bool(tests))
    for test in tests:
        _print_test(test)


def _names(files: Sequence[Path]) -> list[str]:
    """Return the names of files without their folders and endings, if these differ."""
    if len({file.resolve() for file in files}) < len(files):
        raise UserError(f"--against {str(files[1])!r} is the file of --predictions; name another")
    names = [file.stem for file in files]
    return names if len({*names}) == len(names) else [*map(str, files)]


def _tests(scored: Sequence["ScoredRun"]) -> "list[Comparison]":
    from adafuse.metrics.compare import compare_all

    for run in (each.score for each in scored if len(scored) > 1):
        if run.missing:
            raise UserError(
                f"{run.run} has no text for {run.missing} of {run.n} rows, so no test can be made;"
                " add them, empty where there is none, or leave out --against"
            )
    return compare_all(scored)


def _print_test(test: "Comparison") -> None:
    from adafuse.metrics.intervals import Estimate

    ends = Estimate(test.difference, test.low, test.high).ends(2, form=" [{}, {}]", sign="+")
    how = test.test
    if test.wins is not None:
        how += f"; {test.wins} rows only {test.run} has right, {test.losses} only {test.against}"
    typer.echo(
        f"{test.metric} of {test.run} minus {test.against}: {test.difference:+.2f}{ends} points,"
        f" p {test.p:.3g} ({how}): {test.verdict}"
    )
    if not test.alike:
        typer.echo(
            "These cannot be compared: limits, or rows that failed, count against one of them more"
            f" often (cut: {test.cut or 0:.1f} % and {test.other_cut or 0:.1f} %, beyond"
            f" max_new_tokens: {test.beyond:.1f} %, failed: {test.failed} and {test.other_failed})."
        )
    elif not test.significant:
        typer.echo(test.undecided(f"texts of {test.run}"))


def _print(totals: "Score", kept: int, named: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    title = f"{totals.benchmark}, {totals.protocol}, n = {totals.n}"
    if named:
        title = f"{totals.run}: {title}"
    if totals.excluded:
        title += f" ({totals.excluded} few-shot examples left out)"
    if kept:
        title += f" (published keeps the {kept} rows to exclude)"
    units = set(map(unit, totals.metrics))
    grid = Table("metric", "percent" if units == {"percent"} else "score", "95 % interval")
    for name, value in totals.metrics.items():
        grid.add_row(f"{name}{metric_named(name).note}", f"{value.value:.2f}", value.ends(2))
    width = None if Console().is_terminal else 100
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    console.print(title, soft_wrap=True)
    console.print(grid)
    counts = f"{totals.missing} missing, {totals.empty} empty, {totals.failed} failed"
    console.print(f"{counts}: counted as wrong")
    if totals.cut_share is not None:
        console.print(f"{totals.cut} ({totals.cut_share:.1f} %) cut by a limit")
    if totals.beyond:
        console.print(f"{totals.beyond} do not fit into max_new_tokens")
    if totals.announced:
        console.print(f"{totals.announced} end in a colon, so that an answer may be missing")
    for name, detail in totals.details.items():
        console.print(f"{name}: {detail}", soft_wrap=True)


@with_plugins
def audit(
    benchmark: Benchmark,
    references: References,
    predictions: Annotated[Path | None, PREDICTIONS] = None,
    scorer: ScorerName = None,
    field: FieldNames = None,
    csv: Annotated[Path | None, option("The CSV file to write, with the counts.", "FILE")] = None,
    as_json: AsJson = False,
) -> None:
    """Score under both protocols and count the answers that only `published` accepts, by rule.

    Without predictions: compare the rows of a benchmark of the paper with its
    appendix C, and their file with the authors'. Exit status: 0 they are the
    same rows by all figures, 1 they are not.
    """
    from adafuse.metrics.audit import audit as compare
    from adafuse.metrics.score import evaluate
    from adafuse.report.tables import audit_table, write_table
    from adafuse.storage.files import check_writable

    if predictions is None:
        if csv is not None or scorer is not None:
            name = "--scorer" if csv is None else "--csv"
            raise UserError(f"{name} is for predictions; give --predictions, or leave it out")
        _check_rows(benchmark, references, fields_of(field), as_json)
    if csv is not None:
        check_writable(csv, predictions, references)
    names = fields_of(field)
    name, rows, (texts,) = read_files(benchmark, [predictions], references, scorer, names)
    named = {"benchmark": benchmark, "run": predictions.stem}
    strict, published = (
        evaluate(rows, texts, name, protocol, benchmark=benchmark, run=predictions.stem)
        for protocol in PROTOCOLS
    )
    result = compare(strict.outcomes, published.outcomes, name, **named)
    table = audit_table([result])
    if csv is not None:
        write_table(table, csv)
    if as_json:
        echo_json({**asdict(result), "scores": [strict.score, published.score]})
        return
    typer.echo(table.markdown, nl=False)
    first, second = strict.score.main.value, published.score.main.value
    typer.echo(
        f"\n{strict.score.primary}: strict {first:.2f}, published {second:.2f},"
        f" {second - first:+.2f} points"
    )


def _check_rows(benchmark: str, references: Path, fields: Fields, as_json: bool) -> NoReturn:
    from adafuse.benchmarks.description import PaperFigures, describe
    from adafuse.config.reading import read_values
    from adafuse.storage.files import shipped
    from adafuse.workflow.layout import file_sha256

    if benchmark not in BENCHMARKS:
        raise UserError(
            f"appendix C of the paper has no benchmark {benchmark!r}; name one of"
            f" {', '.join(BENCHMARKS)}, or give --predictions{nearest(benchmark, [*BENCHMARKS])}"
        )
    file = shipped("config") / "benchmarks" / f"{benchmark}.yaml"
    values = read_values(file, "benchmark", "docs/benchmarks.md")
    paper = PaperFigures.model_validate(values["paper"])
    figures = paper.beside(describe(read_rows(references, fields=fields), None))
    sha256 = file_sha256(references)
    agree = all(ours == theirs for ours, theirs in figures.values())
    theirs = sha256 == paper.sha256
    if as_json:
        echo_json(
            {"benchmark": benchmark, "figures": figures, "agree": agree, "sha256": sha256}
            | {"authors_file": theirs}
        )
    else:
        for name, (ours, said) in figures.items():
            mark = "ok" if ours == said else "other"
            typer.echo(f"{mark:<6}{name}: {ours} ({said} in appendix C)")
        known = f"SHA-256 of this file: {sha256}, of the authors': {paper.sha256}"
        same = f"the figures are the paper's, but not every byte is the authors'; {known}"
        other = f"these are not the rows of the paper; {known}"
        mine = f"this is the authors' file, byte for byte (SHA-256 {sha256})"
        typer.echo(mine if theirs else same if agree else other)
    raise typer.Exit(0 if agree else FAILED)
