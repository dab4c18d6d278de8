"""`python -m tools.docs.results CONFIG...`: write docs/results.md from docs/results/rows.parquet.

The configurations are those that decoded these rows: config/large.yaml, and one more if models or
benchmarks are files of your own. Benchmarks are read, models are not. Nothing is computed here that
the workflow does not compute: the steps that choose, score and compare are the workflow's.
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import typer
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from adafuse.cli import errors, steps
from adafuse.config.config import Config
from adafuse.config.reading import read_configs
from adafuse.errors import UserError
from adafuse.methods.selections import SELECTIONS
from adafuse.metrics.compare import Comparison
from adafuse.metrics.measures import Cost, cost
from adafuse.metrics.score import Score, ScoredRun, read_score, read_scored
from adafuse.metrics.scorer import STRICT
from adafuse.report.experiments import find_experiment, paired
from adafuse.report.main_table import MANY_EMPTY, stored_table, to_markdown
from adafuse.report.tables import (
    best_members_section,
    doubts,
    escape,
    markdown_table,
    read_comparisons,
    shown_p,
)
from adafuse.storage.parquet import read_metadata
from adafuse.workflow.layout import ResultsLayout
from adafuse.workflow.plan import Plan
from adafuse.workflow.steps import STEPS, Job
from tools.docs.decoded_rows import ROWS, agreement, restore
from tools.docs.pages import ROOT, TEMPLATES

PAGE = ROOT / "docs/results.md"


def score_again(config: Config, rows: Path, folder: Path) -> Config:
    """Make traces, choices, scores and tables in a folder from decoded rows and benchmark files.

    Returns the configuration of what is there: benchmarks on which a run of the main table or of an
    experiment lacks rows are not shown in it.
    """
    plan = Plan(config.model_copy(update={"results": str(folder)}))
    decoded = restore(plan, rows)
    for benchmark in dict.fromkeys(benchmark for benchmark, _ in decoded):
        run_step(plan, Job.of("prepare", benchmark))
    for cell in decoded:
        run_step(plan, Job.of("score", STRICT, *cell))
    tables: list[tuple[Sequence[str], Sequence[str]]] = [(config.main_benchmarks, config.main_runs)]
    tables += [(each.benchmarks, each.runs) for each in config.experiments.values()]
    for chosen in dict.fromkeys(cell for table in tables for cell in product(*table)):
        if chosen[1] not in config.chosen_runs:
            continue
        job = Job.of("choose", *chosen)
        if all(map(Path.exists, plan.inputs(job))):
            run_step(plan, job)
            run_step(plan, Job.of("score", STRICT, *chosen))
    shown = _shown(plan)
    plan = Plan(shown)
    for name in ("compare", "compare_runs", "certificates"):
        for values in STEPS[name].cells(shown):
            run_step(plan, Job.of(name, *values))
    return shown


def run_step(plan: Plan, job: Job, **more: Any) -> None:
    """Run a step of the workflow here, without Snakemake and without stamps."""
    values = dict(zip(STEPS[job.step].wildcards, job.values, strict=True))
    numbers = {name: int(value) for name, value in values.items() if name == "shard"}
    getattr(steps, job.step)(plan, **plan.named_outputs(job), **(values | numbers), **more)


def _shown(plan: Plan) -> Config:
    config = plan.config

    def scored(benchmarks: Sequence[str], runs: Sequence[str]) -> tuple[str, ...]:
        of = {name: [plan.layout.score(STRICT, name, run) for run in runs] for name in benchmarks}
        return tuple(name for name in benchmarks if all(map(Path.exists, of[name])))

    main = scored(config.main_benchmarks, config.main_runs)
    if not main:
        raise UserError("no benchmark has all rows of all runs of the main table yet; decode more")
    found = {name: scored(e.benchmarks, e.runs) for name, e in config.experiments.items()}
    experiments = {
        name: config.experiments[name].model_copy(update={"benchmarks": benchmarks})
        for name, benchmarks in found.items()
        if benchmarks
    }
    shown = config.main.model_copy(update={"benchmarks": main})
    return config.model_copy(
        update={"main": shown, "experiments": experiments, "protocols": (STRICT,)}
    )


class RealResults:
    """What a results folder says, as the page shows it; strict scores only."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.layout = ResultsLayout(config.results)

    def scores(self) -> str:
        """Return the main table."""
        return to_markdown(stored_table(self.config))

    def comparisons(self) -> list[Comparison]:
        """Return all tests."""
        text = self.layout.table("comparison.csv").read_text(encoding="utf-8")
        return [test for test in read_comparisons(text) if test.protocol == STRICT]

    def against_members(self) -> str:
        """Return what each ensemble gains over the better of its models."""
        return best_members_section(self.comparisons())

    def experiments(self) -> dict[str, str]:
        """Return a table for each experiment that compares scores, by its title."""
        return {
            section.title: self._experiment(name)
            for name, section in self.config.experiments.items()
            if section.kind == "scores"
        }

    def _experiment(self, name: str) -> str:
        section = self.config.experiments[name]
        rows = [
            [
                escape(run),
                *(
                    _with_interval(read_score(self.layout.score(STRICT, benchmark, run)))
                    for benchmark in section.benchmarks
                ),
            ]
            for run in section.runs
        ]
        return markdown_table(["run", *map(escape, section.benchmarks)], rows)

    def _pair(self) -> list[str]:
        """Return the runs of both models of the first pair, alone."""
        runs = [self.config.runs[name] for name in self.config.main_runs]
        pair = next(run.models for run in runs if len(run.models) == 2)
        alone = {r.models[0]: name for name, r in self.config.runs.items() if r.method == "single"}
        return [alone[model] for model in pair]

    def agreement(self) -> str:
        """Return how often both models of the first pair, alone, are right, one, or none."""
        names, rows = self._pair(), []
        for benchmark in self.config.main_benchmarks:
            one, two = (self._scored(benchmark, name) for name in names)
            if one.metric.binary:
                pairs = list(zip(one.outcomes, two.outcomes, strict=True))
                right = [(bool(a.value), bool(b.value)) for a, b in pairs]
                kinds = ((True, True), (True, False), (False, True), (False, False))
                same = sum(a.text.strip() == b.text.strip() for a, b in pairs)
                counts = [*map(right.count, kinds), same]
                shares = (f"{100 * count / len(pairs):.1f}" for count in counts)
                rows.append([escape(benchmark), *shares])
        only = (f"only {escape(name)} right" for name in names)
        head = ["benchmark", "both right", *only, "neither right", "the same text"]
        return markdown_table(head, rows)

    def kept(self) -> str:
        """Return on how many rows that one model alone gets right a fused text is right, too."""
        one, _ = self._pair()
        benchmarks = [b for b in self.config.main_benchmarks if self._scored(b, one).metric.binary]
        rows = [
            [escape(run), *(self._kept(name, run) for name in benchmarks)]
            for run in self.config.main_runs
            if self.config.runs[run].method not in SELECTIONS
            and len(self.config.runs[run].models) == 2
        ]
        return markdown_table(["run", *map(escape, benchmarks)], rows)

    def _kept(self, benchmark: str, run: str) -> str:
        names = self._pair()
        scored = [self._scored(benchmark, name) for name in (*names, run)]
        right = list(
            zip(*([bool(row.value) for row in each.outcomes] for each in scored), strict=True)
        )
        shares = []
        for only in ((True, False), (False, True)):
            fused = [row[2] for row in right if row[:2] == only]
            shares.append(f"{sum(fused)} of {len(fused)}")
        return ", ".join(shares)

    def gain(self) -> str:
        """Return the rows that all members get wrong or right, and what fusing makes of them."""
        text = self.layout.table("gain.md").read_text(encoding="utf-8")
        table = [line for line in text.split("\n## ")[1].splitlines() if line.startswith("|")]
        return "\n".join(table) + "\n"

    def certificates(self) -> str:
        """Return what `certified` runs were chosen by, a table for each benchmark."""
        text = self.layout.table("certificates.md").read_text(encoding="utf-8")
        return "###" + text.replace("\n## ", "\n### ").split("\n###", 1)[1].rstrip() + "\n"

    def pairs(self) -> str:
        """Return the tests of runs against each other, of those that no table above has."""
        table = paired(find_experiment(self.config, "pairs"))
        tests = table.filter(pl.col("against").is_not_null())
        rows = [
            [
                escape(test["benchmark"]),
                escape(test["run"]),
                escape(test["against"]),
                f"{test['difference']:+.1f} [{test['difference_low']:+.1f},"
                f" {test['difference_high']:+.1f}]" + r" \*" * test["significant"],
                shown_p(test["p_holm"]),
            ]
            for test in tests.iter_rows(named=True)
        ]
        return markdown_table(["benchmark", "run", "against", "difference", "p (Holm)"], rows, 3)

    def costs(self) -> str:
        """Return what a row cost: forward passes per token, rounds in which models agreed."""
        rows = [
            [escape(run), *(self._cost(name, run) for name in self.config.main_benchmarks)]
            for run in self.config.main_runs
            if self.config.runs[run].method not in SELECTIONS
        ]
        return markdown_table(["run", *map(escape, self.config.main_benchmarks)], rows)

    def _cost(self, benchmark: str, run: str) -> str:
        spent: Cost = cost(self.layout.trace(benchmark, run), benchmark, run)
        if not (spent.tokens and spent.forwards):
            return ""
        models = len(self.config.runs[run].models)
        agreed = agreement(self.layout.trace(benchmark, run))
        share = "" if agreed is None else f", {agreed:.0f} %"
        return f"{spent.forwards / (spent.tokens / models):.2f}{share}"

    def without_answer(self) -> str:
        """Return how many texts hold no answer, where many end in a colon."""
        scores = [read_score(self.layout.score(STRICT, *cell)) for cell in self._cells()]
        many = [score for score in scores if 100 * score.announced / score.n > MANY_EMPTY]
        benchmarks = list(dict.fromkeys(score.benchmark for score in many))
        found = {
            (score.run, score.benchmark): f"{score.empty}, {score.announced}" for score in scores
        }
        rows = [
            [escape(run), *(found[run, name] for name in benchmarks)]
            for run in self.config.main_runs
            if self.config.runs[run].method not in SELECTIONS
        ]
        return markdown_table(["run", *map(escape, benchmarks)], rows)

    def made(self) -> dict[str, Any]:
        """Return how the rows were decoded: days, commits, versions, settings."""
        shards = sorted(self._shards(), key=lambda shard: str(shard["finished"]))
        jobs = [shard["job"] for shard in shards]
        ways = {name: sorted({str(job[name]) for job in jobs}) for name in jobs[0]}
        changed = {shard["git"]["commit"] for shard in shards if shard["git"]["dirty"]}
        found = dict.fromkeys(shard["git"]["commit"] for shard in shards)
        commits = [commit[:12] + r" \*" * (commit in changed) for commit in found]
        days = dict.fromkeys([shards[0]["started"][:10], shards[-1]["finished"][:10]])
        versions = shards[-1]["versions"]
        return {**ways, "days": [*days], "commits": commits, "versions": versions}

    def _cells(self) -> Iterator[tuple[str, str]]:
        return product(self.config.main_benchmarks, self.config.main_runs)

    def _shards(self) -> Iterator[dict[str, Any]]:
        for trace in sorted(self.layout.traces.glob("*/*.parquet")):
            yield from read_metadata(trace).get("shards", ())

    def _scored(self, benchmark: str, run: str) -> ScoredRun:
        return read_scored(self.layout.score(STRICT, benchmark, run))


def _with_interval(score: Score) -> str:
    main, beside = score.main, doubts(score.cut_share, score.failed, score.certified)
    return f"{main.value:.1f}{main.ends(form=' [{}, {}]')} (n = {score.n}, {beside})"


def page(config: Config) -> str:
    """Return the page."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, keep_trailing_newline=True
    )
    template = environment.get_template("docs_results.md.j2")
    return template.render(results=RealResults(config))


def main(configs: Sequence[Path], rows: Path = ROWS, out: Path = PAGE) -> None:
    """Write the page."""
    with TemporaryDirectory() as folder:
        shown = score_again(read_configs(configs), rows, Path(folder))
        out.write_text(page(shown), encoding="utf-8")


app = typer.Typer(no_args_is_help=True)


@app.command()
def _main(configs: list[Path]) -> None:
    """Write docs/results.md from docs/results/rows.parquet."""
    main(configs)


if __name__ == "__main__":
    sys.exit(errors.run(app, "python -m tools.docs.results"))
