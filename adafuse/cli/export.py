"""`adafuse export`: results in the forms of others."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from adafuse.cli.options import ResultsFolder, results_config
from adafuse.errors import UserError

Format = Literal["every-eval-ever", "dataset-card", "latex"]


def export(
    results: ResultsFolder = Path("results"),
    form: Annotated[Format, typer.Option("--format", help="What to write.")] = "every-eval-ever",
    out: Annotated[
        Path | None, typer.Option(help="The folder to write; `export` in the results by default.")
    ] = None,
    organization: Annotated[
        str, typer.Option(help="Who ran the evaluation, for the records.", metavar="NAME")
    ] = "unknown",
    latex: Annotated[
        bool, typer.Option("--latex", help="The same as --format latex.", metavar="")
    ] = False,
    p_values: Annotated[
        bool, typer.Option("--p-values", help="With p-values in the LaTeX tables.", metavar="")
    ] = False,
) -> None:
    """Write results in a form for sharing.

    `every-eval-ever` writes a record with all samples for each scored run, in
    the schema of that name. `dataset-card` writes a README.md that makes the
    folder of traces a data set of the Hugging Face hub. `latex` writes every
    table for a paper, to the folder `tables`. Run it in the folder in which
    Snakemake runs. Results that are not up to date are not exported.
    """
    from adafuse.export.dataset import dataset_card, export_records, fresh_results
    from adafuse.export.latex import export_tables
    from adafuse.storage.files import write_text
    from adafuse.workflow.layout import ResultsLayout
    from adafuse.workflow.plan import Plan
    from adafuse.workflow.prefetch import with_commits

    if latex and form == "dataset-card":
        raise UserError("--latex and --format dataset-card contradict; give one of them")
    form = "latex" if latex else form
    if organization != "unknown" and form != "every-eval-ever":
        raise UserError(f"--organization is for the records, not for {form}; leave it out")
    if p_values and form != "latex":
        raise UserError("--p-values is for LaTeX tables; add --latex")
    plan = Plan(with_commits(results_config(results)))
    runs = fresh_results(plan)
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
    if form == "latex":
        tables = export_tables(plan, folder / "tables", p_values=p_values)
        typer.echo(f"{len(tables)} tables in {folder / 'tables'}; preview.tex shows them all")
        return
    written = export_records(runs, folder, organization)
    if not written:
        raise UserError(f"{str(results)!r} has no scores yet; run snakemake")
    typer.echo(f"{len(written)} records in {folder / 'data'}")
