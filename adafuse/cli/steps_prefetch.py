"""`adafuse step prefetch`: what nodes without a network need."""

import logging
from pathlib import Path
from typing import Annotated

import typer

logger = logging.getLogger(__name__)

app = typer.Typer()


@app.command("prefetch")
def prefetch_step(
    config: Annotated[Path, typer.Option("--config", help="As the workflow stored it.")],
) -> None:
    """Download models and data sets of a configuration and record their commits."""
    from adafuse.models.download import download
    from adafuse.pipeline.parse import read_config
    from adafuse.pipeline.prefetch import prefetch, record_file, with_commits

    settings = with_commits(read_config(config))
    commits = prefetch(settings, download)
    for (path, revision), commit in commits.items():
        logger.info("%s, revision %s: commit %s", path, revision, commit)
    logger.info("%d models in %s", len(commits), record_file(settings.results))
