"""What a report shows of a configuration: all but where jobs run and what they ask for."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from adafuse.benchmarks.shards import Prepared, shard_digest
from adafuse.config.config import Config
from adafuse.config.reading import parse_config, to_json
from adafuse.files import write_text
from adafuse.methods import METHODS
from adafuse.metrics.selection import SELECTIONS
from adafuse.metrics.translation import AbsentModelError, require_model
from adafuse.models.files import file_digest
from adafuse.workflow.benchmarks import UnavailableSourceError, prepare_benchmark, source_file
from adafuse.workflow.choose import Ballot, ballot
from adafuse.workflow.jobs import Request, decode_job, largest, request
from adafuse.workflow.prefetch import with_commits

_PLACES: Any = {
    "results": True,
    "targets": True,
    "cluster": True,
    "decode": {"device", "gpu", "max_error_share"},
    "models": {"__all__": {"device"}},
    "runs": {"__all__": {"cluster"}},
}


def shown(config: Config) -> dict[str, Any]:
    """Return the configuration as JSON-ready values, without the places of jobs."""
    return config.model_dump(mode="json", exclude=_PLACES, exclude_defaults=True)


class Plan:
    """Answers the rules' questions; everything is computed at most once.

    The benchmark files are read while the workflow is planned, so that a job's digest changes with
    the rows of its own shard and with nothing else. What cannot be had here and now, a dataset of
    the hub or the SentencePiece model of spBLEU, is planned as if it were new; `missing` says why,
    and nothing may run.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.missing: dict[str, str] = {}
        self._prepared = cache(partial(prepare_benchmark, config))
        self._job = cache(partial(decode_job, config))
        self._shard_digest = cache(self._digest_of_shard)
        self._shard_sizes = cache(self._rows_per_shard)
        self._own_request = cache(self._request)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Plan":
        """Check a configuration and all benchmark files that it names.

        Raises:
            UserError: the first thing that is wrong.
        """
        plan = cls(with_commits(parse_config(values)))
        for benchmark in plan.benchmarks:
            try:
                plan.prepared(benchmark)
            except UnavailableSourceError as error:
                plan.missing[benchmark] = str(error)
        if any(task.scorer == "translation" for task in plan.config.benchmarks.values()):
            plan._require_sentencepiece()
        return plan

    def _require_sentencepiece(self) -> None:
        try:
            require_model(self.config.spm_sha256)
        except AbsentModelError as error:
            self.missing["spBLEU"] = str(error)

    @property
    def benchmarks(self) -> list[str]:
        """Names in the order of the configuration."""
        return list(self.config.benchmarks)

    @property
    def runs(self) -> list[str]:
        """Names in the order of the configuration."""
        return list(self.config.runs)

    @property
    def main_benchmarks(self) -> list[str]:
        """Benchmarks of the main table."""
        return self.config.main_benchmarks

    @property
    def main_runs(self) -> list[str]:
        """Runs of the main table."""
        return self.config.main_runs

    def timed(self, benchmark: str) -> bool:
        """Say whether a benchmark is decoded with nothing beside it."""
        return self.config.benchmarks[benchmark].timed

    @property
    def decoded_runs(self) -> list[str]:
        """Runs that decode."""
        return [name for name, run in self.config.runs.items() if run.method in METHODS]

    @property
    def chosen_runs(self) -> list[str]:
        """Runs that choose between what others wrote."""
        return [name for name, run in self.config.runs.items() if run.method in SELECTIONS]

    @property
    def fused_runs(self) -> list[str]:
        """Runs of the main table that decode with several models."""
        names = self.config.main_runs
        return [r for r in names if r in self.decoded_runs and len(self.config.runs[r].models) > 1]

    @property
    def protocols(self) -> list[str]:
        """Scoring protocols, `strict` first."""
        return list(self.config.protocols)

    @property
    def config_file(self) -> Path:
        """Where the steps of the workflow read the resolved configuration."""
        return Path(self.config.results) / "config.json"

    def store_config(self) -> None:
        """Write the configuration, every default filled in."""
        write_text(self.config_file, to_json(self.config) + "\n")

    @cached_property
    def table_layout(self) -> str:
        """What the table shows besides scores: its note, and each run's method and models."""
        numbers = self.config.published_numbers
        paper = file_digest(Path(numbers)) if numbers else None
        return json.dumps({"note": self.config.note, "paper": paper, "runs": self.runs_layout})

    @cached_property
    def runs_layout(self) -> str:
        """What a comparison of runs knows of them: their methods and models."""
        runs = {name: self.config.runs[name] for name in self.config.main_runs}
        return json.dumps({name: [run.method, run.models] for name, run in runs.items()})

    @cached_property
    def report_layout(self) -> str:
        """Return what the report shows of the configuration, besides its inputs."""
        return json.dumps(shown(self.config), sort_keys=True)

    def experiment_layout(self, name: str) -> str:
        """Return what an experiment shows besides its inputs."""
        experiment = self.config.experiments[name]
        numbers = self.config.published_numbers
        paper = file_digest(Path(numbers)) if numbers and experiment.published else None
        runs = [
            self.config.runs[run].model_dump(mode="json", exclude={"cluster"})
            for run in experiment.runs
        ]
        timed = [self.timed(benchmark) for benchmark in experiment.benchmarks]
        return json.dumps([experiment.model_dump(mode="json"), runs, paper, timed], sort_keys=True)

    def choice_layout(self, run: str) -> str:
        """Return what a choice between runs depends on besides its inputs."""
        spec = self.config.runs[run]
        candidates = {name: self.config.runs[name].models for name in spec.options.get("runs", [])}
        return json.dumps([spec.method, spec.models, candidates])

    def ballot(self, benchmark: str, run: str) -> Ballot:
        """Return which runs a choice is made between, and by which scores."""
        return ballot(self.config, benchmark, run)

    def answer_runs(self, run: str) -> list[str]:
        """Return the runs whose texts a run starts from, one per model; mostly none."""
        spec = self.config.runs[run]
        if spec.method not in METHODS or not METHODS[spec.method].reads_answers:
            return []
        return self.config.runs_alone(spec)

    @cached_property
    def datasets_layout(self) -> str:
        """What the table of dataset statistics shows: each benchmark's rows and paper's figures."""
        tasks = [(name, self.config.benchmarks[name]) for name in self.config.main_benchmarks]
        parts = [
            [name, self.prepared(name).digest(), task.paper.model_dump()] for name, task in tasks
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    def shards(self, benchmark: str) -> list[int]:
        """Return the shard numbers of a benchmark."""
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
        if benchmark in self.missing:
            return Prepared(())
        return self._prepared(benchmark)

    def shard_digest(self, benchmark: str, shard: int) -> str:
        """Return the digest of a shard's rows."""
        return self._shard_digest(benchmark, shard)

    def digest(self, benchmark: str, run: str, shard: int) -> str:
        """Return the digest of a decode job."""
        answers = [self.digest(benchmark, each, shard) for each in self.answer_runs(run)]
        return self._job(benchmark, run).digest(self.shard_digest(benchmark, shard), answers)

    def digests(self, benchmark: str, run: str) -> list[str]:
        """Return the digests of all shards of a run."""
        return [self.digest(benchmark, run, shard) for shard in self.shards(benchmark)]

    def memory(self, benchmark: str, run: str, shard: int, attempt: int) -> int:
        """Return the megabytes that an attempt of a decode job asks for."""
        return self.request(benchmark, run, shard).memory(attempt, self.config.cluster)

    def minutes(self, benchmark: str, run: str, shard: int, attempt: int) -> int:
        """Return the minutes that an attempt of a decode job asks for."""
        return self.request(benchmark, run, shard).minutes(attempt, self.config.cluster)

    def request(self, benchmark: str, run: str, shard: int) -> Request:
        """Return what a decode job asks a cluster for."""
        if self.config.cluster.uniform:
            return self._largest_request
        return self._own_request(benchmark, run, shard)

    @cached_property
    def _largest_request(self) -> Request:
        return largest(
            self._own_request(benchmark, run, shard)
            for benchmark in self.benchmarks
            for run in self.decoded_runs
            for shard in self.shards(benchmark)
        )

    def _request(self, benchmark: str, run: str, shard: int) -> Request:
        return request(
            self._job(benchmark, run),
            self._shard_sizes(benchmark)[shard],
            gpu=self.config.decode.gpu,
            cluster=self.config.cluster,
            own=self.config.runs[run].cluster,
        )

    def _rows_per_shard(self, benchmark: str) -> Counter[int]:
        return Counter(row.shard for row in self.prepared(benchmark).rows)

    def _digest_of_shard(self, benchmark: str, shard: int) -> str:
        return shard_digest(self.prepared(benchmark).shard(shard))
