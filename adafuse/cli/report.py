"""`adafuse report`: pages that show results, and a trace explorer."""

from pathlib import Path
from typing import Annotated

import typer

from adafuse.errors import UserError


def report(
    shown: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RESULTS", help="A results folder, or traces of `adafuse generate`."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder to write; `report` beside the results.")
    ] = None,
) -> None:
    """Write pages that open anywhere: tables, charts, and a trace explorer."""
    from adafuse.report.pages import check_folder, write_loose_report

    given = shown or [Path("results")]
    if all(path.suffix == ".parquet" for path in given):
        folder = out or given[0].parent / f"{given[0].stem}_report"
        write_loose_report(given, folder)
        typer.echo(str(folder / "explorer.html"))
        return
    if len(given) > 1:
        raise UserError(
            f"{len(given)} arguments of which not all are traces; give one results folder, or"
            " .parquet files"
        )
    folder = out or given[0] / "report"
    if out is not None:
        check_folder(out)
    _whole_report(given[0], folder)
    typer.echo(str(folder / "index.html"))


def _whole_report(results: Path, folder: Path) -> None:
    from adafuse.config.reading import read_config
    from adafuse.report.pages import write_report
    from adafuse.report.stored import Stored

    stored_config = results / "config.json"
    if not results.is_dir():
        raise UserError(
            f"{str(results)!r} is neither a results folder nor a .parquet trace; give one of these"
        )
    if not stored_config.is_file():
        raise UserError(
            f"{str(stored_config)!r} does not exist; name a results folder of the workflow, or"
            " .parquet traces"
        )
    config = read_config(stored_config).model_copy(update={"results": str(results)})
    stored = Stored.found(config)
    if not stored.runs:
        raise UserError(f"{str(results)!r} holds no merged trace yet; run snakemake")
    write_report(stored, folder)
