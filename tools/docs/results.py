"""`python -m tools.docs.results CONFIG`: write docs/results.md from what the workflow made.

CONFIG is the `config.json` of a results folder of config/small.yaml. Nothing is computed here that
the workflow does not compute: scores and tests are those of its tables, costs those of its traces.
"""

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from adafuse.config.config import Config
from adafuse.config.reading import read_config
from adafuse.methods.selections import SELECTIONS
from adafuse.metrics.compare import Comparison
from adafuse.metrics.measures import Cost, cost
from adafuse.metrics.score import Score, ScoredRun, read_score, read_scored
from adafuse.metrics.scorer import STRICT
from adafuse.report.main_table import stored_table, to_markdown
from adafuse.report.tables import (
    best_members_section,
    escape,
    markdown_table,
    read_comparisons,
)
from adafuse.storage.parquet import read_metadata
from adafuse.workflow.layout import ResultsLayout
from tools.docs.pages import ROOT, TEMPLATES

PAGE = ROOT / "docs/results.md"


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
            if section.kind == "scores" and self.layout.experiment(name, "csv").is_file()
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

    def agreement(self) -> str:
        """Return how often both models of the first pair, alone, are right, one, or none."""
        runs = [self.config.runs[name] for name in self.config.main_runs]
        pair = next(run.models for run in runs if len(run.models) == 2)
        alone = {r.models[0]: name for name, r in self.config.runs.items() if r.method == "single"}
        names = [alone[model] for model in pair]
        rows = []
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
        head = ["benchmark", "both right", *only, "neither right", "the same answer"]
        return markdown_table(head, rows)

    def gain(self) -> str:
        """Return the rows that all members get wrong or right, and what fusing makes of them."""
        text = self.layout.table("gain.md").read_text(encoding="utf-8")
        table = [line for line in text.split("\n## ")[1].splitlines() if line.startswith("|")]
        return "\n".join(table) + "\n"

    def costs(self) -> str:
        """Return what a row cost: seconds, forwards per token, rounds in which models agreed."""
        rows = [
            [escape(run), *(self._cost(name, run) for name in self.config.main_benchmarks)]
            for run in self.config.main_runs
            if self.config.runs[run].method not in SELECTIONS
        ]
        return markdown_table(["run", *map(escape, self.config.main_benchmarks)], rows)

    def _cost(self, benchmark: str, run: str) -> str:
        spent: Cost = cost(self.layout.trace(benchmark, run), benchmark, run)
        if not (spent.seconds and spent.tokens and spent.forwards):
            return ""
        agreed = "" if spent.agreed is None else f", {spent.agreed:.0f} %"
        return f"{spent.seconds.value:.1f} s, {spent.forwards / spent.tokens:.2f}{agreed}"

    def emptiest(self) -> Score:
        """Return the score with the largest share of empty answers."""
        scores = [read_score(self.layout.score(STRICT, *cell)) for cell in self._cells()]
        return max(scores, key=lambda score: score.empty / score.n)

    def made(self) -> dict[str, Any]:
        """Return the metadata of the last shard, with the first day of all.

        Raises:
            ValueError: shards were decoded with different versions, or in different ways.
        """
        shards = sorted(self._shards(), key=lambda shard: str(shard["finished"]))
        ways = {_way(shard) for shard in shards}
        if len(ways) > 1:
            raise ValueError(f"the rows were not all decoded alike: {sorted(ways)}")
        return {**shards[-1], "first": shards[0]["started"]}

    def _cells(self) -> Iterator[tuple[str, str]]:
        return product(self.config.main_benchmarks, self.config.main_runs)

    def _shards(self) -> Iterator[dict[str, Any]]:
        for cell in self._cells():
            yield from read_metadata(self.layout.trace(*cell)).get("shards", ())

    def _scored(self, benchmark: str, run: str) -> ScoredRun:
        return read_scored(self.layout.score(STRICT, benchmark, run))


def _with_interval(score: Score) -> str:
    main, failed = score.main, f", {score.failed} failed" if score.failed else ""
    return f"{main.value:.1f}{main.ends(form=' [{}, {}]')} (n = {score.n}{failed})"


def _way(shard: dict[str, Any]) -> str:
    """Return how a shard was decoded, as far as its costs depend on it."""
    job = shard["job"]
    parts = (job["dtype"], job["batch_size"], job["engine"], sorted(set(job["devices"])))
    return repr((shard["versions"], shard["git"], *parts))


def page(config: Config) -> str:
    """Return the page."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, keep_trailing_newline=True
    )
    template = environment.get_template("docs_results.md.j2")
    return template.render(results=RealResults(config))


if __name__ == "__main__":
    PAGE.write_text(page(read_config(Path(sys.argv[1]))), encoding="utf-8")
