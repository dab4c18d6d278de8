"""Everything that the report's page shows, read from a results folder."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adafuse.config.runs import RunConfig
from adafuse.metrics.compare import Comparison
from adafuse.metrics.score import read_score
from adafuse.parquet import read_metadata
from adafuse.report.main_table import Cell, ScoreTable, main_table
from adafuse.report.measures import Cost, WordShare, cost, words_per_round
from adafuse.report.stored import Stored
from adafuse.report.tables import PAPER_TITLE, read_comparisons
from adafuse.workflow.layout import ResultsLayout

BETTER_THAN_MEMBERS, BETTER_THAN_BASELINE = "*", "†"

LEGEND = (
    f"{BETTER_THAN_MEMBERS} better than each of its models on its own; {BETTER_THAN_BASELINE}"
    " better than the best run of another method; both by a paired test with p (Holm) below 0.05"
    " and an interval of the difference without 0 (see the paired comparisons)."
)


@dataclass(frozen=True, slots=True)
class Origin:
    """How a run was made, over all its shards; several values where shards differ."""

    run: str
    facts: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Figure:
    """An experiment's figure and numbers."""

    name: str
    title: str
    svg: Path
    csv: Path


@dataclass(frozen=True, slots=True)
class Contents:
    """Tables by protocol, marks of their cells, texts in Markdown, and what each run cost.

    `options` are those of each run in words; `significant` counts the tests that find a difference,
    and all tests.
    """

    note: str | None
    tables: Mapping[str, ScoreTable]
    marks: Mapping[Cell, str]
    options: Mapping[str, str]
    significant: tuple[int, int]
    texts: Mapping[str, str]
    costs: Sequence[Cost]
    words: Sequence[WordShare]
    figures: Sequence[Figure]
    origins: Sequence[Origin]


def read_contents(stored: Stored) -> Contents:
    """Read what there is; tables that were not made are left out.

    Raises:
        UserError: a file cannot be read.
    """
    config = stored.config
    layout = ResultsLayout(config.results)
    comparison = layout.table("comparison.csv")
    pairs = [(benchmark, run) for benchmark, runs in stored.runs.items() for run in runs]
    compared = (
        read_comparisons(comparison.read_text(encoding="utf-8")) if comparison.is_file() else []
    )
    return Contents(
        note=config.note,
        tables={protocol: _table(stored, protocol) for protocol in config.protocols},
        marks=marks(compared),
        texts=_texts(layout),
        options={name: _options(run) for name, run in config.runs.items()},
        significant=(sum(each.significant for each in compared), len(compared)),
        costs=[
            cost(stored.trace(*pair), *pair, timed=config.benchmarks[pair[0]].timed)
            for pair in pairs
        ],
        words=[share for pair in pairs for share in _words(stored, *pair)],
        figures=_figures(stored),
        origins=[_origin(stored, run) for run in dict.fromkeys(run for _, run in pairs)],
    )


def _table(stored: Stored, protocol: str) -> ScoreTable:
    config = stored.config
    paths = [
        ResultsLayout(config.results).score(protocol, benchmark, run)
        for benchmark in config.main_benchmarks
        for run in config.main_runs
    ]
    scores = [read_score(path) for path in paths if path.is_file()]
    return main_table(config, scores, protocol)


def _texts(layout: ResultsLayout) -> Mapping[str, str]:
    names = ("comparison", "audit", "datasets")
    texts = {name: layout.table(f"{name}.md") for name in names}
    found = {n: p.read_text(encoding="utf-8") for n, p in texts.items() if p.is_file()}
    main = layout.table("main.md")
    _, title, numbers = (main.read_text(encoding="utf-8") if main.is_file() else "").partition(
        PAPER_TITLE
    )
    return found | ({"published": title + numbers} if title else {})


def _words(stored: Stored, benchmark: str, run: str) -> list[WordShare]:
    if len(stored.config.runs[run].models) < 2:
        return []
    return words_per_round(stored.trace(benchmark, run))


def _options(run: RunConfig) -> str:
    return ", ".join(f"{name} {value}" for name, value in run.options.items())


def _figures(stored: Stored) -> list[Figure]:
    layout = ResultsLayout(stored.config.results)
    return [
        Figure(name, section.title, svg, svg.with_suffix(".csv"))
        for name, section in stored.config.experiments.items()
        if (svg := layout.experiment(name, "svg")).is_file()
    ]


def _origin(stored: Stored, run: str) -> Origin:
    traces = [stored.trace(name, run) for name, runs in stored.runs.items() if run in runs]
    return origin(traces, run)


def origin(traces: Iterable[Path], run: str) -> Origin:
    """Put together what the metadata of a run's traces say of models, settings and versions.

    Raises:
        UserError: a trace cannot be read.
    """
    facts: dict[str, dict[str, None]] = {}
    for trace in traces:
        metadata = read_metadata(trace)
        for found in map(_shard_facts, metadata.get("shards", [])):
            for name, value in found.items():
                facts.setdefault(name, {})[value] = None
        if "rows_from" in metadata:
            facts.setdefault("rows from", {})[_counts(metadata["rows_from"])] = None
    return Origin(run, {name: list(values) for name, values in facts.items()})


def _shard_facts(shard: Mapping[str, Any]) -> dict[str, str]:
    job, versions, place = shard["job"], shard["versions"], shard.get("place", {})
    weights = job["weights"] or [1] * len(job["models"])
    return {
        "models": "; ".join(map(_model, job["models"])),
        "weights": ", ".join(f"{weight:g}" for weight in weights),
        "method": job["method"],
        "options": ", ".join(f"{name} = {value}" for name, value in job["options"].items()),
        "number type": job["dtype"],
        "devices": ", ".join(job["devices"]),
        "quantization": ", ".join(str(each or "none") for each in job["quantization"]),
        "engine": f"{job['engine']}, batch size {job['batch_size']}",
        "limits": f"{job['max_new_tokens']} new tokens, stop strings {job['stop']!r}",
        "versions": ", ".join(f"{name} {value}" for name, value in versions.items() if value),
        "commit": _commit(shard["git"]),
        "host": str(place.get("host", "unknown")),
        "GPU": ", ".join(place.get("gpus") or ()) or "none",
        "date": shard["finished"][:10],
    }


def _model(model: Mapping[str, str | None]) -> str:
    exact = model["revision"] or (f"content {model['content']}" if model["content"] else None)
    return f"{model['path']} ({exact or 'not pinned'})"


def _commit(git: Mapping[str, Any]) -> str:
    return f"{git['commit'] or 'unknown'}{' with changes' if git['dirty'] else ''}"


def _counts(rows: Mapping[str, int]) -> str:
    return ", ".join(f"{run} ({count})" for run, count in rows.items())


def marks(comparisons: Iterable[Comparison]) -> Mapping[Cell, str]:
    """Return the marks of each cell that has some."""
    groups: dict[Cell, list[Comparison]] = defaultdict(list)
    for each in comparisons:
        groups[each.protocol, each.benchmark, each.run].append(each)
    found = {cell: _marks(group) for cell, group in groups.items()}
    return {cell: marked for cell, marked in found.items() if marked}


def _marks(group: list[Comparison]) -> str:
    members = [each for each in group if each.role == "member"]
    baselines = [each for each in group if each.role == "best baseline"]
    marked = BETTER_THAN_MEMBERS * (bool(members) and all(map(_better, members)))
    return marked + BETTER_THAN_BASELINE * (bool(baselines) and all(map(_better, baselines)))


def _better(comparison: Comparison) -> bool:
    return comparison.significant and comparison.difference > 0
