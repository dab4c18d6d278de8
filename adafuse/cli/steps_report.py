"""`adafuse step examples` and `adafuse step pages`: the report of the workflow."""

import logging
from pathlib import Path
from typing import Annotated

import typer

logger = logging.getLogger(__name__)

app = typer.Typer(help="The report.", no_args_is_help=True)

ConfigFile = Annotated[Path, typer.Option("--config", help="As the workflow stored it.")]


@app.command("examples")
def examples_step(
    config: ConfigFile,
    benchmark: Annotated[str, typer.Option(help="A benchmark of the configuration.")],
    out: Annotated[Path, typer.Option(help="The folder of the report.")],
) -> None:
    """Write the trace explorer's data of a benchmark."""
    from adafuse.pipeline.parse import read_config
    from adafuse.report.build import write_examples
    from adafuse.report.stored import Stored

    stored = Stored.main(read_config(config))
    write_examples(stored, benchmark, out)
    logger.info("%d runs", len(stored.runs[benchmark]))


@app.command("pages")
def pages_step(
    config: ConfigFile,
    out: Annotated[Path, typer.Option(help="The folder of the report.")],
) -> None:
    """Write the report's pages; the examples beside them are there already."""
    from adafuse.pipeline.parse import read_config
    from adafuse.report.build import write_pages
    from adafuse.report.stored import Stored

    write_pages(Stored.main(read_config(config)), out)
