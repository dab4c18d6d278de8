"""Everything that the report's page shows, read from a results folder."""

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from adafuse.errors import UserError
from adafuse.methods.selections import BestOf
from adafuse.metrics.compare import Comparison
from adafuse.metrics.intervals import INTERVALS
from adafuse.metrics.measures import cost, words_per_round
from adafuse.metrics.score import CERTIFICATE, cut_legend
from adafuse.metrics.scorer import PUBLISHED
from adafuse.models.spec import WITH
from adafuse.report.experiments import compared_kinds, conditions_of
from adafuse.report.main_table import stored_table
from adafuse.report.stored import StoredResults
from adafuse.report.tables import PAPER_TITLE, read_comparisons
from adafuse.storage.files import without_folders
from adafuse.storage.parquet import read_metadata
from adafuse.workflow.layout import ResultsLayout
from adafuse.workflow.stamps import intact

BETTER_THAN_MEMBERS, BETTER_THAN_BASELINE = "*", "†"

MARKS_LEGEND = (
    f"{BETTER_THAN_MEMBERS} better than each of its models on its own; {BETTER_THAN_BASELINE}"
    " better than the best baseline; both by a paired test with p (Holm) below 0.05, an interval"
    " of the difference without 0, and about as many answers cut (see the paired comparisons)."
)

ScoreKey = tuple[str, str, str]
"""Protocol, benchmark and run."""


def read_contents(results: StoredResults) -> dict[str, Any]:
    """Return what there is for templates/index.html.j2; tables that were not made are left out.

    So is what the configuration does not ask for (any more), though it may still be there.

    `options` are those of each run in words; `significant` counts the tests that find a difference,
    `noninferior` those that only show that a run is not inferior, `little` those of them with a
    margin that is large beside the score; `figures` are titles by SVG file, whose numbers are in a
    CSV file beside it.
    """
    config, layout = results.config, results.layout
    pairs = [(benchmark, run) for benchmark, runs in results.runs.items() for run in runs]
    traces = defaultdict(list)
    for benchmark, run in pairs:
        traces[run].append(results.trace(benchmark, run))
    experiments = config.shown_experiments.items()
    figures = {layout.experiment(name, "svg"): section.title for name, section in experiments}
    compared = read_comparisons(_text(layout, "comparison.csv"))
    small = [test for test in compared if test.noninferior and not test.significant]
    tables = {protocol: stored_table(config, protocol) for protocol in config.protocols}
    return {
        "note": config.note,
        "legend": MARKS_LEGEND,
        "cut_legend": cut_legend(tables["strict"].scores),
        "intervals": INTERVALS,
        "tables": tables,
        "marks": marks(compared),
        "options": {
            name: ", ".join(f"{key} {_public(value)}" for key, value in run.options.items())
            for name, run in config.runs.items()
        },
        "significant": sum(test.significant for test in compared),
        "noninferior": len(small),
        "little": sum(bool(test.doubt) for test in small),
        "compared": compared,
        "texts": _texts(layout, config.protocols),
        "costs": [
            cost(results.trace(*pair), *pair, timed=config.benchmarks[pair[0]].timed, answers=own)
            for pair in pairs
            if config.runs[pair[1]].method != BestOf.name  # each row needs the answers of all
            for own in [results.answers(*pair)]
            if all(trace.is_file() for trace in own)
        ],
        "unlike": _unlike(results, pairs),
        "words": [
            share
            for benchmark, run in pairs
            if len(config.runs[run].models) > 1
            for share in words_per_round(results.trace(benchmark, run))
        ],
        "figures": {svg: title for svg, title in figures.items() if svg.is_file()},
        "origins": {run: origin(paths) for run, paths in traces.items()},
    }


def _unlike(results: StoredResults, pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Say in what the runs of each timed benchmark were not decoded alike."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for benchmark, run in pairs:
        if results.config.benchmarks[benchmark].timed:
            with suppress(UserError):  # a choice, or an older trace
                shards = conditions_of(results.trace(benchmark, run))
                found[benchmark] += map(compared_kinds, shards)
    told = []
    for benchmark, kinds in found.items():
        for name in dict.fromkeys(chain.from_iterable(kinds)):
            values = dict.fromkeys(str(each[name] or "none") for each in kinds if name in each)
            if len(values) > 1:
                told.append(f"{benchmark}: {name} {' and '.join(values)}")
    return told


def _texts(layout: ResultsLayout, protocols: Collection[str]) -> dict[str, str]:
    audit = ["audit"] if PUBLISHED in protocols else []
    names = ("metrics", "comparison", "gain", "certificates", *audit, "datasets")
    texts = {name: _text(layout, f"{name}.md") for name in names}
    _, title, numbers = _text(layout, "main.md").partition(PAPER_TITLE)
    texts["published"] = title + numbers
    # The audit names no folders, but has answers that may look like some.
    return {
        name: text if name == "audit" else without_folders(text)
        for name, text in texts.items()
        if text
    }


def _text(layout: ResultsLayout, file: str) -> str:
    path = layout.table(file)
    return intact(path).read_text(encoding="utf-8") if path.is_file() else ""


def origin(traces: Iterable[Path]) -> dict[str, list[str]]:
    """Put together what the metadata of a run's traces say of models, settings and versions.

    A fact has several values where shards differ. The page may be published: no folder of the
    machine and no host name is among them.
    """
    facts: dict[str, dict[str, None]] = defaultdict(dict)
    for trace in traces:
        metadata = read_metadata(trace)
        parts = [_shard_facts(shard) for shard in metadata.get("shards", [])]
        if rows := metadata.get("rows_from"):
            counts = ", ".join(f"{run} ({count})" for run, count in rows.items())
            parts.append({"rows from": counts})
        if certificate := metadata.get(CERTIFICATE):
            parts.append({"certificate": certificate["sentence"]})
        for name, value in chain.from_iterable(part.items() for part in parts):
            facts[name][without_folders(value)] = None
    return {name: list(values) for name, values in facts.items()}


def _shard_facts(shard: Mapping[str, Any]) -> dict[str, str]:
    job, git, place = shard["job"], shard["git"], shard.get("place", {})
    weights = job["weights"] or [1] * len(job["models"])
    versions = {name: version for name, version in shard["versions"].items() if version}
    return {
        "models": "; ".join(
            WITH.join(map(_model, filter(None, (model, model.get("adapter")))))
            for model in job["models"]
        ),
        "weights": ", ".join(f"{weight:g}" for weight in weights),
        "method": job["method"],
        "options": ", ".join(f"{k} = {_public(value)}" for k, value in job["options"].items()),
        "number type": job["dtype"] or "that of the servers",
        "devices": ", ".join(job["devices"]),
        "quantization": ", ".join(str(bits or "none") for bits in job["quantization"]),
        "engine": f"{job['engine']}, batch size {job['batch_size']}",
        "limits": f"{job['max_new_tokens']} new tokens, stop strings {job['stop']!r}",
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "commit": f"{git['commit'] or 'unknown'}{' with changes' if git['dirty'] else ''}",
        "GPU": ", ".join(place.get("gpus") or ()) or "none",
        "date": shard["finished"][:10],
    }


def _public(value: object) -> str:
    """Return an option as text, and a file by its last part."""
    text = str(value)
    return Path(text).name if os.path.isabs(text) else without_folders(text)


def _model(model: Mapping[str, Any]) -> str:
    exact = model.get("revision") or (f"content {model['content']}" if model["content"] else None)
    path = Path(str(model["path"]))  # only what lies on a machine has a digest of its content
    return f"{path.name if model['content'] else path} ({exact or 'not pinned'})"


def marks(comparisons: Iterable[Comparison]) -> dict[ScoreKey, str]:
    """Return the marks of each cell that has some."""
    better: dict[ScoreKey, dict[str, bool]] = defaultdict(dict)
    for test in comparisons:
        roles = better[test.protocol, test.benchmark, test.run]
        roles[test.role] = roles.get(test.role, True) and test.significant and test.gain > 0
    signs = {"member": BETTER_THAN_MEMBERS, "best baseline": BETTER_THAN_BASELINE}
    marked = {
        place: "".join(sign for role, sign in signs.items() if roles.get(role))
        for place, roles in better.items()
    }
    return {place: text for place, text in marked.items() if text}
