"""The comparison table as CSV and Markdown."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from itertools import groupby

from pydantic import TypeAdapter

from adafuse.comparison.compare import Comparison
from adafuse.scoring.markdown import escape

LEGEND = """\
Each ensemble against each of its models alone and against the best baseline: of all other runs
whose method is not adafuse, the one with the highest score on the same rows, so chosen with the
answers in sight. Scores are in percent; their own intervals stand in the main table. The difference
is run minus other, in points, with its 95 % interval (accuracies: Newcombe 1998, method 10, for
paired proportions; BLEU: middle of 1,000 paired resamples). A row without a usable text counts as
wrong.

p is that of McNemar's exact two-sided test for accuracies, of sacrebleu's paired bootstrap (seed
12345) for BLEU; p (Holm) is adjusted for all tests of its table. The p-value of sacrebleu's paired
bootstrap is generous: two equally good systems fall below 0.05 about one time in ten. So a
difference is marked \\* only if p (Holm) is below 0.05 and its interval leaves out 0. The
smallest p of the bootstrap is 1/1001, so that no BLEU difference can be marked in a table of more
than 50 tests. "Only run right" and "only other right" count the rows on which the two disagree.
"""

_HEAD = (
    "| run | against | role | score | other | difference | p | p (Holm) | only run right"
    " | only other right |"
)
_RULE = f"|{' --- |' * 3}{' ---: |' * 7}"


def to_csv(comparisons: Sequence[Comparison]) -> str:
    """Return a row per comparison: points with four decimals, p-values with four digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [field.name for field in fields(Comparison)]
    writer.writerow(names)
    for comparison in comparisons:
        values = zip(names, astuple(comparison), strict=True)
        writer.writerow([_csv_cell(name, value) for name, value in values])
    return text.getvalue()


def from_csv(text: str) -> list[Comparison]:
    """Read what `to_csv` returned; numbers have lost the digits that it left out."""
    rows = csv.DictReader(io.StringIO(text))
    plain = [{name: value or None for name, value in row.items()} for row in rows]
    return TypeAdapter(list[Comparison]).validate_python(plain)


def to_markdown(comparisons: Sequence[Comparison], never_alone: Mapping[str, Sequence[str]]) -> str:
    """Return a table per benchmark and protocol.

    Args:
        comparisons: those of one benchmark and protocol next to each other.
        never_alone: models by ensemble that no run uses alone; the text says so.
    """
    groups = groupby(comparisons, key=lambda each: (each.benchmark, each.protocol))
    parts = [_section(list(group)) for _, group in groups]
    parts = parts or ["No run has more than one model, so nothing is compared.\n"]
    return "\n".join(["# Paired comparisons\n", LEGEND, *parts, *_remarks(never_alone)])


def _section(group: Sequence[Comparison]) -> str:
    first = group[0]
    title = f"{escape(first.benchmark)}, {escape(first.protocol)} scoring"
    heading = f"## {title} ({escape(first.metric)}, {first.test}, n = {first.n})\n"
    return "\n".join([heading, _HEAD, _RULE, *(_row(each) for each in group), ""])


def _row(each: Comparison) -> str:
    mark = r" \*" if each.significant else ""
    cells = [
        escape(each.run),
        escape(each.against),
        each.role,
        f"{each.value:.1f}",
        f"{each.other:.1f}",
        f"{each.difference:+.1f} [{each.low:+.1f}, {each.high:+.1f}]{mark}",
        _p(each.p),
        _p(each.p_holm),
        _count(each.wins),
        _count(each.losses),
    ]
    return f"| {' | '.join(cells)} |"


def _p(value: float) -> str:
    return r"\< 0.001" if value < 0.001 else f"{value:.3f}"


def _count(value: int | None) -> str:
    return "" if value is None else str(value)


def _csv_cell(name: str, value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if name in ("p", "p_holm") else f"{value:.4f}"
    return "" if value is None else str(value)


def _remarks(never_alone: Mapping[str, Sequence[str]]) -> list[str]:
    return [
        f"- {escape(run)} is not compared with {escape(', '.join(models))} alone: no run of method"
        " single uses it.\n"
        for run, models in never_alone.items()
    ]
