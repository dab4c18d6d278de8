"""Case studies: rows on which an ensemble stands out from its models, decoded side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from adafuse.config.config import Config
from adafuse.metrics.compare import Runs, models_without_single, single_runs
from adafuse.metrics.registry import SCORERS
from adafuse.metrics.scorer import STRICT, Metric
from adafuse.records.views import one_line
from adafuse.report.failures import Failure, failures
from adafuse.report.stored import StoredResults
from adafuse.report.tables import escape, markdown_table
from adafuse.storage.parquet import iterate_rows
from adafuse.storage.traces import result_from

_RULE = """\
Two rows of each benchmark for each ensemble, chosen by their strict scores: the row on which it is
furthest ahead of the best of its models decoding alone, and the row on which it is furthest behind
the worst of them; of several equal rows, the first. Where an answer is right or wrong, these are
the first row that the ensemble gets right and all of its models wrong, and the first of the reverse
kind. gain.md counts such rows. They show how fusing works, not how often it helps.

"Scored" is what the scorer takes of an answer, where that is not all of it. A row of the rounds is
a candidate; => marks the one that was committed. "By" names the models that proposed it, NLL is its
negative log-likelihood per token under each model, and the smallest F wins.
"""


@dataclass(frozen=True, slots=True)
class CaseStudy:
    """A row on which a `run` is above all of its models, or below them, by a `margin`."""

    run: str
    above: bool
    margin: float
    row: Failure


def case_studies(
    rows: Sequence[Failure], metric: Metric, run: str, members: Sequence[str]
) -> Iterator[CaseStudy]:
    """Yield the rows on which a run is furthest above its members and furthest below, if any."""
    for sign in (1, -1):
        found = []
        for row in rows:
            if not {run, *members} <= row.answers.keys():
                continue
            merits = {name: sign * metric.merit(given.value) for name, given in row.answers.items()}
            margin = merits[run] - max(merits[name] for name in members)
            if margin > 0:
                found.append(CaseStudy(run, sign > 0, margin, row))
        if found:
            yield max(found, key=lambda case: (case.margin, -case.row.row))


def case_study_page(config: Config) -> tuple[str, int]:
    """Return the case studies of the main table's ensembles as Markdown, and how many they are.

    If runs are under study, those are the ensembles.
    """
    results = StoredResults(config, dict.fromkeys(config.main_benchmarks, config.main_runs))
    runs = config.compared(config.main_runs)
    fused = [run for run in config.fused_runs if run in (config.main.study or runs)]
    parts, count = ["# Case studies\n", _RULE], 0
    for benchmark in config.main_benchmarks:
        metric = SCORERS[config.benchmarks[benchmark].scorer].primary
        rows = failures(results, benchmark, config.main_runs, STRICT)
        for run in fused:
            if lacking := models_without_single(runs).get(run):
                named = escape(", ".join(lacking))
                parts.append(f"{escape(run)}: no run of method single uses {named}.\n")
                continue
            cases = [*case_studies(rows, metric, run, single_runs(runs, run))]
            for case in cases:
                parts += _case(results, benchmark, metric, case, runs)
            if not cases:
                parts.append(f"No row of {escape(benchmark)} sets {escape(run)} apart.\n")
            count += len(cases)
    return "\n".join(parts), count


def _case(
    results: StoredResults, benchmark: str, metric: Metric, case: CaseStudy, runs: Runs
) -> Iterator[str]:
    row, run = case.row, escape(case.run)
    if metric.binary:
        ours, theirs = ("right", "wrong") if case.above else ("wrong", "right")
        said = f"{run} is {ours}, all of its models are {theirs}"
    else:
        side = "better than the best" if case.above else "worse than the worst"
        label = escape(metric.label) + metric.note
        said = f"{run} is {case.margin:.1f} {side} of its models ({label})"
    yield f"## {escape(benchmark)}: {said}\n"
    yield f"Row {row.row}, {escape(one_line(row.id))}.\n"
    yield f"Prompt: {_shown(row.question)}\n"
    yield f"Gold answer: {' or '.join(map(_shown, row.gold))}\n"
    answers = [
        (
            escape(name),
            ("right" if given.right else "wrong") if metric.binary else f"{given.value:.1f}",
            _shown(given.text),
            _shown(given.scored) * (given.scored.strip() != given.text.strip()),
        )
        for name, given in row.answers.items()
    ]
    yield markdown_table(("run", metric.label, "answer", "scored"), answers, text=4)
    yield f"Rounds of {run}:\n"
    yield _rounds(results, benchmark, case, runs[case.run][1])


def _rounds(results: StoredResults, benchmark: str, case: CaseStudy, models: Sequence[str]) -> str:
    trace = iterate_rows(results.trace(benchmark, case.run))
    rounds = result_from(next(row for row in trace if row["id"] == case.row.id)).rounds
    head, rows = ("", "candidate", "by", *(f"NLL {model}" for model in models), "F"), []
    for number, one in enumerate(rounds, 1):
        cells = one.cells(models)[1]
        rows += [
            (str(number) * (place == 0), *map(escape, each)) for place, each in enumerate(cells)
        ]
    return markdown_table(("round", *map(escape, head)), rows, text=4)


def _shown(text: str) -> str:
    return escape(one_line(text.strip()))
