"""The page about Python names everything public, and the notebook runs."""

import re
from itertools import groupby
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import adafuse

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs/walkthrough.ipynb"


def test_the_page_names_what_is_public_and_dir_shows_nothing_else() -> None:
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    rows = page.partition("| name | what it is |")[2].partition("\n\n")[0]
    named = re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in rows.split("\n") if line))
    assert sorted(named) == sorted(adafuse.__all__) == dir(adafuse)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    shown = [kinds(cell) for cell in notebook.cells]
    where = {"metadata": {"path": ROOT / "docs"}}
    NotebookClient(notebook, timeout=200, resources=where).execute()
    assert [kinds(cell) for cell in notebook.cells] == shown


def kinds(cell: Any) -> list[str]:
    """What a cell puts out, but for warnings; what it prints may come in several pieces."""
    outputs = cell.get("outputs", [])
    found = (each.output_type for each in outputs if each.get("name") != "stderr")
    return [kind for kind, _ in groupby(found)]
