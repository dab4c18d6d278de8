"""`adafuse report`: pages that show results, and a trace explorer."""

from pathlib import Path
from typing import Annotated

import typer

from adafuse.cli.options import results_config
from adafuse.cli.output import warn_of_stale
from adafuse.errors import UserError


def report(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RESULTS", help="A results folder, or traces of `adafuse generate`."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder to write; `report` in the results by default.")
    ] = None,
) -> None:
    """Write pages for a browser: tables, charts, and a trace explorer."""
    from adafuse.report.pages import check_folder, write_loose_report, write_report
    from adafuse.report.stored import StoredResults
    from adafuse.workflow.layout import ResultsLayout

    paths = paths or [Path("results")]
    if all(path.suffix == ".parquet" for path in paths):
        out = out or paths[0].parent / f"{paths[0].stem}_report"
        write_loose_report(paths, out)
        typer.echo(str(out / "explorer.html"))
        return
    if len(paths) > 1:
        raise UserError(
            f"{len(paths)} arguments of which not all are traces; give one results folder, or"
            " .parquet files"
        )
    folder, layout = str(paths[0]), ResultsLayout(paths[0])
    if out is not None:
        check_folder(out)
    if not Path(folder).is_dir():
        raise UserError(
            f"{folder!r} is neither a results folder nor a .parquet trace; give one of these"
        )
    results = StoredResults.in_folder(results_config(paths[0]))
    if not results.runs:
        raise UserError(f"{folder!r} has no merged trace yet; run snakemake")
    warn_of_stale(results, tables=True)
    write_report(results, out or layout.report)
    typer.echo(str((out or layout.report) / "index.html"))
