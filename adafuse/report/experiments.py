"""The experiments of a configuration: what each reads, and the table of what it measures."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from adafuse.config.config import Config
from adafuse.config.experiments import ExperimentConfig
from adafuse.config.reading import check_published
from adafuse.config.sweep_axis import sweep_positions
from adafuse.decoding.gate import read_gate
from adafuse.development.gate_file import FittedGate
from adafuse.errors import UserError, unknown
from adafuse.methods.selections import SELECTIONS, is_oracle
from adafuse.metrics.compare import compare_all, members
from adafuse.metrics.measures import cost, words_per_round
from adafuse.metrics.published import read_published
from adafuse.metrics.registry import metric_named
from adafuse.metrics.score import read_score, read_scored
from adafuse.models.spec import AUTO, device_kind
from adafuse.report.main_table import MACRO_AVERAGE, averaged, same_rows
from adafuse.storage.parquet import read_metadata
from adafuse.workflow.jobs import answer_runs, gate_rows
from adafuse.workflow.layout import ResultsLayout
from adafuse.workflow.stamps import intact

RUN = ("run", "method", "models", "selection")
"""What every table says of a run.

`selection` tells by what a run chose between other runs: "oracle" (by the answers of the very rows
it is scored on), "development" (by other rows), or nothing.
"""


ALL = "all"
"""Stands for a feature where a value is what all of them gain."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment of a configuration whose results are stored."""

    config: Config
    name: str
    section: ExperimentConfig

    @property
    def cells(self) -> list[tuple[str, str, str]]:
        """Protocol, benchmark and run of every score, in the order of the configuration."""
        return list(product(self.config.protocols, self.section.benchmarks, self.section.runs))

    @property
    def decoded(self) -> list[tuple[str, str]]:
        """Benchmark and run of every trace."""
        return list(product(self.section.benchmarks, self.section.runs))

    def describe(self, run: str) -> dict[str, str]:
        """Return the columns `RUN`."""
        method, models = self.config.runs[run].method, self.config.runs[run].models
        selection = "development" if method in SELECTIONS else ""
        if is_oracle(method):
            selection = "oracle"
        return dict(zip(RUN, (run, method, "+".join(models), selection), strict=True))

    @property
    def layout(self) -> ResultsLayout:
        """Where the results are."""
        return ResultsLayout(self.config.results)

    def trace(self, benchmark: str, run: str) -> Path:
        """Return the path of a merged trace; see `require`."""
        return self.require(self.layout.trace(benchmark, run))

    def require(self, path: Path) -> Path:
        """Return the path of a file, which must exist."""
        if not path.is_file():
            raise UserError(
                f"experiment {self.name!r} needs {str(path)!r}, which is not there; run snakemake"
                f" {self.name}"
            )
        return intact(path)


def find_experiment(config: Config, name: str) -> Experiment:
    """Return an experiment of a configuration."""
    if name not in config.experiments:
        raise UserError(unknown("experiment", name, list(config.experiments)))
    check_published(config)
    return Experiment(config, name, config.experiments[name])


def scores(experiment: Experiment) -> pl.DataFrame:
    """Return every score in percent with its 95 % interval; then, of several, the averages.

    `paper` is the value that the paper prints in its row `paper_row`, in percent.
    """
    printed = _printed(experiment)
    rows = []
    for cell in experiment.cells:
        value, name = printed.get(cell, (None, ""))
        rows.append(_score(experiment, *cell) | {"paper": value, "paper_row": name})
    table = pl.DataFrame(rows, schema_overrides={"paper": pl.Float64}, infer_schema_length=None)
    _refuse_different_rows(table)
    metrics = [metric_named(name) for name in table["metric"]]
    if len(experiment.section.benchmarks) == 1 or averaged(metrics) is None:
        return table
    whole = pl.col("paper").is_not_null().all()
    averages = table.group_by("protocol", *RUN, maintain_order=True).agg(
        benchmark=pl.lit(MACRO_AVERAGE),
        metric=pl.lit("mean of the scores"),
        failed=pl.col("failed").sum(),
        value=pl.col("value").mean(),
        paper=pl.when(whole).then(pl.col("paper").mean()),
        paper_row=pl.when(whole).then(pl.col("paper_row").first()),
    )
    return pl.concat([table, averages], how="diagonal")


def _score(experiment: Experiment, protocol: str, benchmark: str, run: str) -> dict[str, Any]:
    score = read_score(experiment.require(experiment.layout.score(protocol, benchmark, run)))
    return {
        "benchmark": benchmark,
        "protocol": protocol,
        **experiment.describe(run),
        "metric": score.primary,
        "n": score.n,
        "failed": score.failed,
        **asdict(score.main),
        "cut": score.cut_share,
        "beyond": score.beyond_share,
    }


def _printed(experiment: Experiment) -> dict[tuple[str, str, str], tuple[float, str]]:
    """Return the paper's value and row for each cell that it can be compared with."""
    rows, file = experiment.section.published, experiment.config.published_numbers
    if not rows or file is None:
        return {}
    published = read_published(Path(file))
    return {
        (published.protocol, benchmark, run): (value, name)
        for run, name in rows.items()
        for benchmark, value in published.cells[name].items()
    }


def _refuse_different_rows(table: pl.DataFrame) -> None:
    for group in table.partition_by("benchmark", "protocol", maintain_order=True):
        benchmark, protocol = group.select("benchmark", "protocol").row(0)
        same_rows(f"the {protocol} scores of {benchmark!r}", group["n"], "panel")


def sweep(experiment: Experiment) -> pl.DataFrame:
    """Return every score with its series and its position `x`, the run's value of `option`."""
    runs = {name: experiment.config.runs[name] for name in experiment.section.runs}
    positions = sweep_positions(f"experiments.{experiment.name}", experiment.section.options, runs)
    rows = [_score(experiment, *cell) | asdict(positions[cell[2]]) for cell in experiment.cells]
    table = pl.DataFrame(rows, infer_schema_length=None)
    _refuse_different_rows(table)
    first = ("benchmark", "protocol", *RUN, "series", "option", "x")
    return table.select(*first, pl.exclude(first))


def paired(experiment: Experiment) -> pl.DataFrame:
    """Return the scores, and every pair of runs on each benchmark under each protocol.

    The difference is run minus `against` in points, with its 95 % interval; `p_holm` is adjusted
    for all pairs of the benchmark under the protocol. See `adafuse.metrics.compare.Comparison`.
    """
    table = scores(experiment)
    layout = experiment.layout
    for cell in experiment.cells:
        experiment.require(layout.outcomes(*cell))
    scored = [read_scored(layout.score(*cell)) for cell in experiment.cells]
    compared = compare_all(scored, experiment.config.main.margin)
    tests = pl.DataFrame(compared).select(
        *("benchmark", "protocol", "run", "metric", "n", "against", "difference"),
        pl.col("low", "high").name.prefix("difference_"),
        *("test", "p", "p_holm", "margin", "p_noninferior", "worst", "detectable", "rows_needed"),
        significant=pl.Series([test.significant for test in compared]),
    )
    tests = tests.join(table.select(RUN).unique(), on="run", maintain_order="left")
    return pl.concat([table, tests], how="diagonal")


def frontier(experiment: Experiment) -> pl.DataFrame:
    """Return every score with what decoding cost.

    `forwards_per_token` has the forward passes of all models together, over the tokens that one
    model needs for the text, on average; `forwards`, `evaluated` (the tokens that these passes ran)
    and `seconds_mean` are per example, with those of the answers that a run starts from. What a run
    would cost that chose between others is not known. `best`: no other run scores as well at a
    lower cost, or better at the same one; of those that chose by the answers of the very rows, none
    is. `earlier` rows were decoded in an earlier attempt or for another run, which changes what
    drafts spare.

    `equal_forwards` is, for an ensemble, the best run of one of its models that needs at most as
    many forward passes, `equal_forwards_difference` the score minus that of this run, with its
    95 % interval; `equal_evaluated` is the same for tokens.
    """
    costs = {cell: _cost(experiment, *cell) for cell in experiment.decoded}
    rows = [_score(experiment, *cell) | costs[cell[1:]] for cell in experiment.cells]
    table = pl.DataFrame(rows, schema_overrides=_COSTS, infer_schema_length=None)
    _refuse_different_rows(table)
    panels = table.partition_by("protocol", "benchmark", maintain_order=True)
    panels = [panel.with_columns(best=_undominated(_merits(panel))) for panel in panels]
    return pl.concat([_at_equal_cost(experiment, panel) for panel in panels])


_BUDGETS = ("forwards", "evaluated")
_COSTS = {
    "forwards_per_token": pl.Float64,
    **dict.fromkeys(_BUDGETS, pl.Float64),
    "seconds_mean": pl.Float64,
    "earlier": pl.Int64,
}


def _cost(experiment: Experiment, benchmark: str, run: str) -> dict[str, Any]:
    spec = experiment.config.runs[run]
    if spec.method not in SELECTIONS:
        answers = [experiment.trace(benchmark, o) for o in answer_runs(experiment.config, run)]
        spent = cost(experiment.trace(benchmark, run), benchmark, run, answers=answers)
        if spent.seconds is not None and spent.forwards is not None and spent.tokens:
            passes = spent.forwards / (spent.tokens / len(spec.models))
            budgets = spent.forwards, spent.evaluated
            known = passes, *budgets, spent.seconds.value, spent.earlier
            return dict(zip(_COSTS, known, strict=True))
    return dict.fromkeys(_COSTS)


def _at_equal_cost(experiment: Experiment, panel: pl.DataFrame) -> pl.DataFrame:
    """Add, for each budget, the best that one model of each ensemble does with it."""
    rows, columns = panel.to_dicts(), dict[str, list[Any]]()
    models = {run: experiment.config.runs[run].models for run in experiment.section.runs}
    for budget, row in product(_BUDGETS, rows):
        other = best_member(row, rows, budget, models)
        values: tuple[Any, ...] = (None,) * len(_EQUAL)
        if other is not None:
            values = other["run"], other["value"], *_difference(experiment, row, other)
        for name, value in zip(_EQUAL, values, strict=True):
            columns.setdefault(f"equal_{budget}{name}", []).append(value)
    kinds = {name: pl.String if name[6:] in _BUDGETS else pl.Float64 for name in columns}
    return panel.hstack(pl.DataFrame(columns, schema=kinds))


_EQUAL = ("", "_value", "_difference", "_difference_low", "_difference_high")


def best_member(
    row: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    budget: str,
    models: Mapping[str, Sequence[str]],
) -> Mapping[str, Any] | None:
    """Return the best of `rows` that has one of the models of an ensemble and at most its `budget`.

    `models` are those of each run. It is None for a single model, and where nothing is known or
    affordable. Of equal scores the cheapest counts, then the first.
    """
    own = models[row["run"]]
    if len(own) < 2 or row[budget] is None:
        return None
    merit = metric_named(row["metric"]).merit
    alone = [other for other in rows if len(used := models[other["run"]]) == 1 and used[0] in own]
    known = [other for other in alone if other[budget] is not None]
    affordable = [other for other in known if other[budget] <= row[budget] * (1 + 1e-9)]
    return min(affordable, key=lambda o: (-merit(o["value"]), o[budget]), default=None)


def _difference(
    experiment: Experiment, row: Mapping[str, Any], other: Mapping[str, Any]
) -> tuple[float, float | None, float | None]:
    cells = [(row["protocol"], row["benchmark"], run) for run in (row["run"], other["run"])]
    for cell in cells:
        experiment.require(experiment.layout.outcomes(*cell))
    (test,) = compare_all([read_scored(experiment.layout.score(*cell)) for cell in cells])
    return test.difference, test.low, test.high


def _merits(panel: pl.DataFrame) -> pl.DataFrame:
    metric = metric_named(panel["metric"][0])
    return panel.with_columns(pl.col("value").map_elements(metric.merit, pl.Float64))


def _undominated(panel: pl.DataFrame) -> pl.Series:
    points = list(panel.select("forwards_per_token", "value").iter_rows())
    known = [point for point in points if point[0] is not None]
    return pl.Series(
        cost is not None
        and not any(x <= cost and y >= value and (x, y) != (cost, value) for x, y in known)
        for cost, value in points
    )


def words(experiment: Experiment) -> pl.DataFrame:
    """Return the shares of each run's rounds by the number of words they committed, in percent.

    See `adafuse.metrics.measures.WordShare`.
    """
    rows = []
    for benchmark, run in experiment.decoded:
        trace = experiment.trace(benchmark, run)
        shares = words_per_round(trace)
        if not shares:
            raise UserError(
                f"no round of trace {str(trace)!r} committed a word; leave run {run!r} out of"
                f" experiments.{experiment.name}"
            )
        names = {"benchmark": benchmark, **experiment.describe(run)}
        rows += [names | asdict(share) for share in shares]
    return pl.DataFrame(rows)


def runtime(experiment: Experiment) -> pl.DataFrame:
    """Return seconds per example over the `n` examples that did not end in an error.

    `mean_relative_to_members` is the mean divided by the sum of the means of the single models.
    `devices` has one entry per model, `gpus` the kinds of GPU; `timed` says that nothing else ran
    on the machine.
    """
    traces = {cell: experiment.trace(*cell) for cell in experiment.decoded}
    conditions = {trace: conditions_of(trace) for trace in traces.values()}
    _refuse_mixture([(trace, one) for trace, all_of in conditions.items() for one in all_of])
    rows: list[dict[str, Any]] = []
    for (benchmark, run), trace in traces.items():
        names = {"benchmark": benchmark, **experiment.describe(run)}
        timed = {"timed": experiment.config.benchmarks[benchmark].timed}
        rows.append(names | _seconds(trace, benchmark, run) | conditions[trace][0] | timed)
    _relate_to_members(experiment, rows)
    return pl.DataFrame(rows, infer_schema_length=None)


def _seconds(trace: Path, benchmark: str, run: str) -> dict[str, Any]:
    spent = cost(trace, benchmark, run)
    if spent.seconds is None:
        raise UserError(
            f"trace {str(trace)!r} has no example that was decoded to its end; see its column error"
        )
    lower, median, upper = spent.quartiles
    return {
        "n": spent.n - spent.errors,
        "failed": spent.errors,
        "seconds_median": median,
        "seconds_quartile_1": lower,
        "seconds_quartile_3": upper,
        "seconds_mean": spent.seconds.value,
        "seconds_mean_low_bootstrap95": spent.seconds.low,
        "seconds_mean_high_bootstrap95": spent.seconds.high,
        "mean_relative_to_members": None,
    }


def _relate_to_members(experiment: Experiment, rows: Sequence[dict[str, Any]]) -> None:
    """Relate each ensemble's mean to the sum of its models' means, where all are known."""
    runs = experiment.config.compared(list(dict.fromkeys(row["run"] for row in rows)))
    means = {(row["benchmark"], row["run"]): row["seconds_mean"] for row in rows}
    for row in rows:
        models, alone = runs[row["run"]][1], members(runs, row["run"])
        if len(models) > 1 and all(alone.values()):
            total = sum(means[row["benchmark"], alone[model][0]] for model in models)
            row["mean_relative_to_members"] = row["seconds_mean"] / total


def conditions_of(trace: Path) -> list[dict[str, Any]]:
    """Return how each shard of a trace was decoded."""
    try:
        return [
            {
                "batch_size": shard["job"]["batch_size"],
                "dtype": shard["job"]["dtype"],
                "devices": " ".join(shard["job"]["devices"]),
                "gpus": ", ".join(sorted({*(shard.get("place", {}).get("gpus") or ())})),
                "engine": shard["job"]["engine"],
                "torch": str(shard["versions"]["torch"]),
            }
            for shard in read_metadata(trace)["shards"]
        ]
    except KeyError as error:
        raise UserError(
            f"trace {str(trace)!r} does not say how it was decoded (no {error}); only runs that"
            " decode have a runtime"
        ) from None


def _refuse_mixture(shards: Sequence[tuple[Path, dict[str, Any]]]) -> None:
    """Refuse times of different conditions; which of several GPUs of a kind makes no difference."""
    (first, one), *others = ((trace, compared_kinds(conditions)) for trace, conditions in shards)
    for trace, other in others:
        for name, value in one.items():
            if other[name] != value:
                raise UserError(
                    f"the times of {str(first)!r} ({name} {value}) and {str(trace)!r} ({name}"
                    f" {other[name]}) cannot be compared; decode both alike"
                )


def compared_kinds(conditions: dict[str, Any]) -> dict[str, Any]:
    """Return what must be the same of conditions under which times can be compared."""
    kinds = sorted({device_kind(device) for device in conditions["devices"].split()})
    named = {"device": "+".join(kinds), "batch size": conditions["batch_size"]}
    if {"cuda", AUTO} & {*kinds}:  # those of a machine that decodes otherwise do not count
        named["GPU"] = conditions["gpus"]
    return {name: conditions[name] for name in ("dtype", "engine", "torch")} | named


def gates(experiment: Experiment) -> pl.DataFrame:
    """Return the importance of each feature and the calibration of each run's gate.

    `part` is "importance": `value` is what of the gain is lost on rows held out if the coefficient
    of `name` is 0, or of `ALL`, in `unit`; or "calibration": of `rounds` rounds in which the rule
    `name` gave its choice the probability `chance`, `value` percent have no better candidate.
    Nothing but a calibration of mean_nll is there of a gate that is the paper's rule.
    """
    rows = []
    for benchmark, run in experiment.decoded:
        on = gate_rows(experiment.config, benchmark, run)
        assert on is not None
        path = experiment.require(experiment.layout.gate(on, run))
        fitted = read_gate(str(path), FittedGate).fitted
        about = {"benchmark": benchmark, **experiment.describe(run), "fitted_on": on}
        whole = {ALL: fitted.gain[str(fitted.penalty)]} if fitted.penalty is not None else {}
        rows += [
            about | {"part": "importance", "name": name, "value": value, "unit": fitted.unit}
            for name, value in (whole | fitted.importance).items()
        ]
        rows += [
            {**about, "part": "calibration", "name": rule, "rounds": each.rounds}
            | {"chance": 100 * each.chance, "value": 100 * each.right}
            for rule, bins in fitted.calibration.items()
            for each in bins
        ]
    if not rows:
        raise UserError(
            f"experiments.{experiment.name}: no choice mattered on any development row; give more"
        )
    return pl.DataFrame(rows, infer_schema_length=None)
