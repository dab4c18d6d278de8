"""Runs that decode nothing: which runs they choose between, and the trace of their choice."""

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from adafuse.config.config import Config
from adafuse.errors import UserError
from adafuse.methods.selections import Certified, Evidence, selection
from adafuse.metrics.certificate import Certificate, certify
from adafuse.metrics.registry import metric_named
from adafuse.metrics.score import CERTIFICATE, read_outcomes, read_score, read_scored
from adafuse.metrics.scorer import STRICT
from adafuse.storage.parquet import read_arrow, read_metadata
from adafuse.storage.traces import write_joined
from adafuse.workflow.layout import ResultsLayout
from adafuse.workflow.stamps import intact


@dataclass(frozen=True, slots=True)
class Ballot:
    """The runs that a selection chooses between on a benchmark, and whose scores decide.

    `evidence` holds (benchmark, run), one per model; for a certificate, also of each candidate.
    """

    candidates: tuple[str, ...]
    evidence: tuple[tuple[str, str], ...]


def ballot(config: Config, benchmark: str, run: str) -> Ballot:
    """Return what a run of a selection depends on."""
    spec = config.runs[run]
    chosen = selection(spec.method, spec.options)
    singles = config.single_model_runs(spec)
    task, candidates, judged = config.benchmarks[benchmark], chosen.candidates(singles), singles
    scored: str | None = benchmark
    if isinstance(chosen, Certified):  # which falls back on a single model
        scored, candidates = task.certified_on, [*dict.fromkeys([*candidates, *singles])]
        judged = candidates
    elif chosen.development:
        scored = task.development
    if scored is None:
        raise UserError(
            f"runs.{run}: benchmark {benchmark!r} has no development rows to choose by; set its"
            " `development` to a benchmark that holds them"
        )
    return Ballot(tuple(candidates), tuple((scored, name) for name in judged))


def choose_rows(config: Config, benchmark: str, run: str, out: Path) -> dict[str, int]:
    """Write the merged trace of a selection; return how many rows come from which run."""
    spec, choices = config.runs[run], ballot(config, benchmark, run)
    layout, method = ResultsLayout(config.results), selection(spec.method, spec.options)
    chosen: int | dict[str, int]
    certificate = dict[str, Any]()
    if isinstance(method, Certified):
        found = _certificate(config, choices, run, method)
        said = {"on": choices.evidence[0][0], "exact": found.exact, "sentence": found.sentence}
        certificate = {CERTIFICATE: asdict(found) | said}
        chosen = choices.candidates.index(found.chosen)
    else:
        chosen = method.choose(
            spec.models,
            [_evidence(layout, *cell) for cell in choices.evidence],
            [config.runs[name].models for name in choices.candidates],
        )
    files = {name: intact(layout.trace(benchmark, name)) for name in choices.candidates}
    tables = [read_arrow(file) for file in files.values()]
    ids = [table["id"].to_pylist() for table in tables]
    # A row that is not scored, such as a few-shot example of the prompt, is the first candidate's.
    picked = [(chosen if isinstance(chosen, int) else chosen.get(row, 0), row) for row in ids[0]]
    numbered = ((number, row) for number, rows in enumerate(ids) for row in rows)
    position = {key: at for at, key in enumerate(numbered)}
    taken_from = [choices.candidates[number] for number, _ in picked]
    table = (
        pa.concat_tables(tables, promote_options="default")  # older ones lack columns
        .take([position[key] for key in picked])
        .set_column(tables[0].column_names.index("run"), "run", pa.array([run] * len(picked)))
        .append_column("taken_from", pa.array(taken_from))
    )
    counts = dict(Counter(taken_from))
    digests = {name: read_metadata(file)["digest"] for name, file in files.items()}
    said = {"method": spec.method, "benchmark": benchmark, "run": run, "rows_from": counts}
    write_joined(out, table, "of", digests, **said, **certificate)
    return counts


def _certificate(config: Config, choices: Ballot, run: str, method: Certified) -> Certificate:
    layout, singles = ResultsLayout(config.results), config.single_model_runs(config.runs[run])
    files = [layout.score(STRICT, *cell) for cell in choices.evidence]
    for file in files:
        intact(file.with_suffix(".outcomes.parquet"))
    return certify(
        method.candidates(singles),
        singles,
        [read_scored(intact(file)) for file in files],
        order=method.options.order,
        alpha=method.options.alpha,
        margin=config.main.margin,
    )


def _evidence(layout: ResultsLayout, benchmark: str, run: str) -> Evidence:
    outcomes = read_outcomes(intact(layout.outcomes(STRICT, benchmark, run)))
    score = read_score(intact(layout.score(STRICT, benchmark, run)))
    merit = metric_named(score.primary).merit
    values = {outcome.id: merit(outcome.value) for outcome in outcomes}
    return Evidence(merit(score.main.value), values)
