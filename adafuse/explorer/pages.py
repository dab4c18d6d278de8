"""The files of the explorer besides its data: the page, its scripts and its styles."""

import shutil
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from adafuse.files import write_text

SCRIPTS = (
    "theme.js",
    "chunks.js",
    "../data/manifest.js",
    "dom.js",
    "model.js",
    "filters.js",
    "spans.js",
    "rounds.js",
    "detail.js",
    "list.js",
    "state.js",
    "explorer.js",
)
"""In the order in which they are loaded."""


def templates(package: str) -> Environment:
    """Return the templates of a package; whatever they are given is escaped."""
    loader = PackageLoader(package)
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip


def write_explorer(folder: Path, *, report: bool) -> None:
    """Write explorer.html and its assets into a folder.

    Args:
        folder: what will hold data/ beside them.
        report: whether there is an index.html to link to.
    """
    copy_assets("adafuse.explorer", folder / "assets")
    page = templates("adafuse.explorer").get_template("explorer.html.j2")
    write_text(folder / "explorer.html", page.render(scripts=SCRIPTS, report=report))


def copy_assets(package: str, folder: Path) -> None:
    """Copy a package's scripts and styles into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for asset in files(package).joinpath("assets").iterdir():
        if asset.name.endswith((".js", ".css")):
            with asset.open("rb") as source, (folder / asset.name).open("wb") as target:
                shutil.copyfileobj(source, target)
