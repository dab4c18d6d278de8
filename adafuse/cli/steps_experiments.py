"""`adafuse step experiment`."""

import logging
from pathlib import Path
from typing import Annotated

import typer

logger = logging.getLogger(__name__)

app = typer.Typer(help="Tables and figures of the paper.", no_args_is_help=True)


@app.command("experiment")
def experiment_step(
    config: Annotated[Path, typer.Option("--config", help="As the workflow stored it.")],
    name: Annotated[str, typer.Option(help="An experiment of the configuration.")],
    csv: Annotated[Path, typer.Option(help="The CSV file to write.")],
    svg: Annotated[Path, typer.Option(help="The figure to write as SVG.")],
    png: Annotated[Path, typer.Option(help="The figure to write as PNG.")],
) -> None:
    """Turn stored results into the numbers and the figure of an experiment."""
    from adafuse.experiments.build import build
    from adafuse.experiments.inputs import find_experiment
    from adafuse.pipeline.parse import read_config
    from adafuse.traces.atomic import write_bytes, write_text

    built = build(find_experiment(read_config(config), name))
    write_text(csv, built.csv)
    write_bytes(svg, built.svg)
    write_bytes(png, built.png)
    logger.info("%d points", built.csv.count("\n") - 1)
