"""`adafuse export`: results in the forms of others."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from adafuse.cli.options import ResultsFolder, results_config
from adafuse.errors import UserError

Format = Literal["every-eval-ever", "dataset-card"]


def export(
    results: ResultsFolder = Path("results"),
    form: Annotated[Format, typer.Option("--format", help="What to write.")] = "every-eval-ever",
    out: Annotated[
        Path | None, typer.Option(help="The folder to write; `export` in the results by default.")
    ] = None,
    organization: Annotated[
        str, typer.Option(help="Who ran the evaluation, for the records.", metavar="NAME")
    ] = "unknown",
) -> None:
    """Write results in a form for sharing.

    `every-eval-ever` writes a record with all samples for each scored run, in
    the schema of that name. `dataset-card` writes a README.md that makes the
    folder of traces a data set of the Hugging Face hub. Run it in the folder in
    which Snakemake runs. Results that are not up to date are not exported.
    """
    from adafuse.export.dataset import dataset_card, export_records, fresh_results
    from adafuse.storage.files import write_text
    from adafuse.workflow.layout import ResultsLayout
    from adafuse.workflow.plan import Plan
    from adafuse.workflow.prefetch import with_commits

    runs = fresh_results(Plan(with_commits(results_config(results))))
    if not runs.runs:
        raise UserError(f"{str(results)!r} has no merged trace yet; run snakemake")
    if form == "dataset-card":
        if out is not None:
            raise UserError("the dataset card is written beside the traces; leave out --out")
        card = ResultsLayout(results).card
        write_text(card, dataset_card(runs))
        typer.echo(str(card))
        return
    folder = out or results / "export"
    written = export_records(runs, folder, organization)
    if not written:
        raise UserError(f"{str(results)!r} has no scores yet; run snakemake")
    typer.echo(f"{len(written)} records in {folder / 'data'}")
