"""Runs that decode nothing: which runs they choose between, and the trace of their choice."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from adafuse.config.config import Config
from adafuse.metrics.registry import metric_named
from adafuse.metrics.score import read_outcomes, read_score
from adafuse.metrics.scorer import STRICT
from adafuse.metrics.selection import Evidence, selection
from adafuse.workflow.tables import outcomes_file, score_file
from adafuse.workflow.traces import read_arrow, read_metadata, write_arrow


@dataclass(frozen=True, slots=True)
class Ballot:
    """The runs that a selection chooses between on a benchmark, and whose scores decide there.

    `evidence` holds (benchmark, run), one per model.
    """

    candidates: tuple[str, ...]
    evidence: tuple[tuple[str, str], ...]


def ballot(config: Config, benchmark: str, run: str) -> Ballot:
    """Return what a run of a selection depends on."""
    spec = config.runs[run]
    chosen = selection(spec.method, spec.options)
    alone = config.runs_alone(spec)
    scored = config.benchmarks[benchmark].development if chosen.development else benchmark
    assert scored is not None, "checked with the configuration"
    return Ballot(tuple(chosen.candidates(alone)), tuple((scored, name) for name in alone))


def choose_rows(config: Config, benchmark: str, run: str, out: Path) -> dict[str, int]:
    """Write the merged trace of a selection; return how many rows come from which run.

    Raises:
        UserError: a trace or score that it depends on cannot be read.
    """
    spec, choices = config.runs[run], ballot(config, benchmark, run)
    chosen = selection(spec.method, spec.options).choose(
        spec.models,
        [_evidence(config, *each) for each in choices.evidence],
        [config.runs[name].models for name in choices.candidates],
    )
    return _write(config, benchmark, run, choices.candidates, chosen, out)


def _evidence(config: Config, benchmark: str, run: str) -> Evidence:
    outcomes = read_outcomes(outcomes_file(config, STRICT, benchmark, run))
    score = read_score(score_file(config, STRICT, benchmark, run))
    sign = 1 if metric_named(score.primary).higher_is_better else -1
    values = {outcome.id: sign * outcome.value for outcome in outcomes}
    return Evidence(sign * score.main.value, values)


def _write(
    config: Config,
    benchmark: str,
    run: str,
    candidates: tuple[str, ...],
    chosen: int | dict[str, int],
    out: Path,
) -> dict[str, int]:
    import pyarrow as pa

    files = [Path(config.results, "traces", benchmark, f"{name}.parquet") for name in candidates]
    tables = [read_arrow(file) for file in files]
    ids = tables[0]["id"].to_pylist()
    # A row that nobody scored, such as a few-shot example of the prompt, is the first candidate's.
    numbers = [chosen if isinstance(chosen, int) else chosen.get(row, 0) for row in ids]
    places = [{row: at for at, row in enumerate(table["id"].to_pylist())} for table in tables]
    taken = [
        tables[number].slice(places[number][row], 1)
        for number, row in zip(numbers, ids, strict=True)
    ]
    table = pa.concat_tables(taken)
    named = pa.array([run] * len(table), pa.string())
    table = table.set_column(table.schema.get_field_index("run"), "run", named)
    sources = [candidates[number] for number in numbers]
    table = table.append_column("taken_from", pa.array(sources, pa.string()))
    counts = dict(Counter(sources))
    digests = {
        name: read_metadata(file)["digest"] for name, file in zip(candidates, files, strict=True)
    }
    write_arrow(out, table, {"method": config.runs[run].method, "rows_from": counts, "of": digests})
    return counts
