"""The table of certificates: what each run of method `certified` chose, and the tests behind it."""

from typing import Any

from adafuse.config.config import Config
from adafuse.metrics.certificate import Candidate
from adafuse.metrics.intervals import FEWEST_ROWS
from adafuse.metrics.score import CERTIFICATE, MANY_CUT
from adafuse.report.tables import Table, escape, markdown_table
from adafuse.storage.parquet import read_metadata
from adafuse.workflow.layout import ResultsLayout
from adafuse.workflow.stamps import intact
from adafuse.workflow.steps import certified_cells

_LEGEND = f"""\
Each run of method `certified` chooses a run by rows of another benchmark. A certificate says that
its score is less than the margin below that of the best single model. Over draws of such rows, the
chance of a certificate for a run that is not is at most alpha: exact for accuracies (the test of
Hsueh, Liu and Chen 2001 against every single model, of which the largest p counts; Learn then Test,
arXiv 2110.01052), approximate for others (bootstrap). It says nothing of other kinds of questions,
of other prompts, or of the scores in the main table, which are those of the test rows. A run
without a certificate is the single model that leads on those rows, which may be the wrong one.

A run is certified if its p is at most its level. "Rows" says how many give it a certificate in 80
of 100 cases, if the difference is truly what it was here. P is "none", and nothing is certified,
where fewer than {FEWEST_ROWS} rows differ (for scores other than accuracies), or where the two runs
cannot be compared: limits cut, or rows failed, more than {MANY_CUT:.0f} points more often in one of
them, or more than {MANY_CUT:.0f} % of the answers go beyond `max_new_tokens`.
"""
_COLUMNS = (
    *("benchmark", "run", "certified_on", "n", "metric", "exact", "margin", "alpha", "order"),
    *("chosen", "certified", "candidate", "against", "difference", "p", "level", "passed"),
    "rows_needed",
)
_HEAD = ("candidate", "against", "difference", "p", "level", "certified", "rows")

Found = tuple[str, str, dict[str, Any]]
"""A benchmark, a run, and its certificate there."""


def stored_certificates(config: Config) -> list[Found]:
    """Read the certificates of the main table's runs from their traces."""
    layout = ResultsLayout(config.results)
    return [
        (benchmark, run, read_metadata(intact(layout.trace(benchmark, run)))[CERTIFICATE])
        for benchmark, run in certified_cells(config)
    ]


def certificates_table(certificates: list[Found]) -> Table:
    """Return a row per candidate; the Markdown has a table per benchmark and run."""
    rows, parts = [], ["# Certificates\n", _LEGEND]
    for benchmark, run, found in certificates:
        tests = [Candidate(**each) for each in found["candidates"]]
        names = ("on", "n", "metric", "exact", "margin", "alpha", "order", "chosen", "certified")
        about = [benchmark, run, *(found[name] for name in names)]
        rows += [
            [*about, t.run, t.against, t.difference, t.p, t.level, t.certified, t.rows_needed]
            for t in tests
        ]
        parts += [
            f"## {escape(run)} on {escape(benchmark)}\n",
            f"{escape(found['sentence'])}. Rows: {escape(found['on'])}; order: {found['order']}.\n",
            markdown_table(_HEAD, map(_row, tests), text=2),
        ]
    return Table(_COLUMNS, rows, "\n".join(parts))


def _row(test: Candidate) -> list[str]:
    if test.difference is None:
        return [escape(test.run), "", "", "", "not tested", "", ""]
    return [
        escape(test.run),
        escape(test.against or ""),
        f"{test.difference:+.1f}",
        "none" if test.p is None else f"{test.p:.4f}",
        "not tested" if test.level is None else f"{test.level:.4f}",
        "yes" if test.certified else "no",
        "" if test.rows_needed is None else f"{test.rows_needed:,}",
    ]
