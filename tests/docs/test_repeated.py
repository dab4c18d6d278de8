"""Scores of docs/results.md that other pages repeat are the same there."""

import re
from pathlib import Path

import pytest

from .markdown import ROOT

README = {
    "SmolLM2-135M-Instruct": "smollm2",
    "Gemma-3-270M": "gemma3",
    "**AdaFuse**": "adafuse",
    "AdaFuse, B = 3": "adafuse_b3",
    "AdaFuse with [weights": "adafuse_learned",
    "UniTE": "unite",
    "oracle": "best_of",
}
CHOOSING = {
    "the better model": "gemma3",
    "`adafuse`": "adafuse",
    "`adafuse`, B = 3": "adafuse_b3",
    "`adafuse`, `fusion: learned`": "adafuse_learned",
    "`unite`": "unite",
    "`gac`": "gac",
    "`bytewise`": "bytewise",
    "`adafuse`, `disagreement: bytes`": "adafuse_bytes",
}


def table(page: Path, above: str) -> list[list[str]]:
    """The rows of the first table below a text, without the head; bold and shares cut left out."""
    lines = page.read_text(encoding="utf-8").split(above, 1)[1].split("\n")
    start = next(at for at, line in enumerate(lines) if line.startswith("|"))
    stop = next(at for at in range(start, len(lines)) if not lines[at].startswith("|"))
    return [line.strip("| ").split(" | ") for line in lines[start + 2 : stop]]


RESULTS = {
    row[0].replace("\\", ""): [re.sub(r"\*\*|(?<=\]) .*", "", cell) for cell in row[3:]]
    for row in table(ROOT / "docs/results.md", "**Note:**")
}


@pytest.mark.parametrize(
    ("page", "above", "runs", "cells", "column"),
    [
        ("README.md", "### Two small real models", README, slice(0, 5), slice(1, None)),
        ("docs/choosing.md", "The scores behind this table.", CHOOSING, slice(5, 6), slice(2, 3)),
    ],
)
def test_a_table_that_repeats_results_has_the_same_figures(
    page: str, above: str, runs: dict[str, str], cells: slice, column: slice
) -> None:
    found = {}
    for head, *row in table(ROOT / page, above):
        if named := [label for label in runs if head.startswith(label)]:
            label = max(named, key=len)
            if re.match(r"\d", row[column.start - 1]):
                found[runs[label]] = [cell.strip() for cell in [head, *row][column]]
    assert found == {run: RESULTS[run][cells] for run in runs.values()}
