"""What the rules of the workflow ask: rows, digests, dependencies and resources of every job."""

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache, cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

from adafuse.benchmarks.shards import Prepared
from adafuse.config.config import Config
from adafuse.config.reading import parse_config, to_json
from adafuse.files import write_text
from adafuse.methods import METHODS
from adafuse.metrics.selection import SELECTIONS
from adafuse.metrics.translation import AbsentModelError, require_model
from adafuse.workflow import digest
from adafuse.workflow.benchmarks import UnavailableSourceError, prepare_benchmark, source_file
from adafuse.workflow.choose import ballot
from adafuse.workflow.jobs import Resources, decode_job, estimate
from adafuse.workflow.layout import ResultsLayout
from adafuse.workflow.prefetch import with_commits

TRACE_KINDS = ("runtime", "words_per_round")  # experiments that read traces, not scores
Cell = tuple[str, str]
"""A benchmark and a run."""


def one_of(names: Iterable[str]) -> str:
    """Return a pattern for exactly these names, which may be none."""
    return "|".join(map(re.escape, names)) or "(?!)"


class Plan:
    """Answers the rules' questions; everything is computed at most once.

    Benchmarks are read while the workflow is planned, so that a job's digest changes with the rows
    of its own shard and with nothing else. What is not here, a hub dataset or the SentencePiece
    model of spBLEU, is planned as if it were new; `missing` says why, and nothing may run.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.layout = ResultsLayout(config.results)
        self.missing: dict[str, str] = {}
        self._prepared = cache(partial(prepare_benchmark, config))
        self._job = cache(partial(decode_job, config))
        self.shard = cache(lambda benchmark, shard: self.prepared(benchmark).shard(shard))
        self.shard_digest = cache(lambda *shard: digest.shard_digest(self.shard(*shard)))
        self._estimate = cache(
            lambda *cell, shard: estimate(self._job(*cell), len(self.shard(cell[0], shard)), config)
        )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Plan":
        """Check a configuration and all benchmark files that it names."""
        plan = cls(with_commits(parse_config(values)))
        for benchmark in plan.config.benchmarks:
            try:
                plan.prepared(benchmark)
            except UnavailableSourceError as error:
                plan.missing[benchmark] = str(error)
        if any(task.scorer == "translation" for task in plan.config.benchmarks.values()):
            try:
                require_model(plan.config.spm_sha256)
            except AbsentModelError as error:
                plan.missing["spBLEU"] = str(error)
        return plan

    @property
    def decoded_runs(self) -> list[str]:
        return [name for name, run in self.config.runs.items() if run.method in METHODS]

    @property
    def chosen_runs(self) -> list[str]:
        return [name for name, run in self.config.runs.items() if run.method in SELECTIONS]

    @property
    def fused_runs(self) -> list[str]:
        """Runs of the main table that decode with several models."""
        names = self.config.main_runs
        return [r for r in names if r in self.decoded_runs and len(self.config.runs[r].models) > 1]

    def store_config(self) -> None:
        write_text(self.layout.config, to_json(self.config) + "\n")

    def datasets_settings(self) -> str:
        """Return what the dataset statistics depend on: rows, and the paper's figures."""
        tasks = [(name, self.config.benchmarks[name]) for name in self.config.main_benchmarks]
        rows = {name: digest.prepared_digest(self.prepared(name)) for name, _ in tasks}
        return json.dumps([rows, [task.paper.model_dump() for _, task in tasks]])

    def experiment_inputs(self, name: str) -> list[Path]:
        experiment, layout = self.config.experiments[name], self.layout
        cells = list(product(experiment.benchmarks, experiment.runs))
        if experiment.kind in TRACE_KINDS:
            return [layout.trace(*cell) for cell in cells]
        scored = [(protocol, *cell) for protocol in self.config.protocols for cell in cells]
        return [path(*score) for path in (layout.score, layout.outcomes) for score in scored]

    def answer_runs(self, run: str) -> list[str]:
        """Return the runs whose texts a run starts from, one per model; mostly none."""
        spec = self.config.runs[run]
        if spec.method not in METHODS or not METHODS[spec.method].reads_answers:
            return []
        return self.config.single_model_runs(spec)

    def all_cells(self) -> list[Cell]:
        return list(product(self.config.benchmarks, self.decoded_runs))

    def requested_cells(self) -> list[Cell]:
        """Return what plain `snakemake` decodes: its targets, and what they start from."""
        waiting = list(product(self.config.main_benchmarks, self.config.main_runs))
        if "experiments" in self.config.targets:
            for experiment in self.config.experiments.values():
                waiting += product(experiment.benchmarks, experiment.runs)
        found: set[Cell] = set()
        while waiting:
            cell = waiting.pop()
            if cell not in found:
                found.add(cell)
                waiting += self._dependencies(*cell)
        return [cell for cell in self.all_cells() if cell in found]

    def _dependencies(self, benchmark: str, run: str) -> list[Cell]:
        if run in self.chosen_runs:
            choices = ballot(self.config, benchmark, run)
            return [*product([benchmark], choices.candidates), *choices.evidence]
        return [(benchmark, name) for name in self.answer_runs(run)]

    def shards(self, benchmark: str) -> list[int]:
        return list(range(self.config.benchmarks[benchmark].shards))

    def source(self, benchmark: str) -> list[str]:
        """Return the files that a benchmark is made from; none while it is missing."""
        if benchmark in self.missing:
            return []
        task = self.config.benchmarks[benchmark]
        shots = [task.shots.file] if task.shots else []
        ids = [task.ids_file] if task.ids_file else []
        return [str(source_file(self.config, benchmark)), *shots, *ids]

    def prepared(self, benchmark: str) -> Prepared:
        """Return a benchmark's rows; none while it is missing."""
        return Prepared(()) if benchmark in self.missing else self._prepared(benchmark)

    def digest(self, benchmark: str, run: str, shard: int) -> str:
        answers = [self.digest(benchmark, name, shard) for name in self.answer_runs(run)]
        rows = self.shard_digest(benchmark, shard)
        return digest.decode_digest(self._job(benchmark, run), rows, answers)

    def digests(self, benchmark: str, run: str) -> list[str]:
        return [self.digest(benchmark, run, shard) for shard in self.shards(benchmark)]

    def resources(self, benchmark: str, run: str, shard: int, attempt: int = 1) -> Resources:
        """Return what an attempt of a decode job asks a cluster for, counted from 1."""
        uniform = self.config.cluster.uniform
        first = self._largest if uniform else self._estimate(benchmark, run, shard=shard)
        return first.for_attempt(attempt, self.config.cluster)

    @cached_property
    def _largest(self) -> Resources:
        jobs = (
            self._estimate(*cell, shard=shard)
            for cell in self.all_cells()
            for shard in self.shards(cell[0])
        )
        return Resources(*map(max, zip(*jobs, strict=True)))
