"""What the workflow plans from: the shards of each benchmark and the digest of each job."""

import hashlib
import json
from collections.abc import Mapping
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from adafuse.benchmarks.prepare import Prepared
from adafuse.benchmarks.shards import shard_digest
from adafuse.pipeline.config import Config
from adafuse.pipeline.identity import file_digest
from adafuse.pipeline.job import decode_job
from adafuse.pipeline.parse import parse_config, to_json
from adafuse.pipeline.sources import source_file
from adafuse.pipeline.tasks import prepare_benchmark
from adafuse.traces.atomic import write_text


class Plan:
    """Answers the rules' questions; everything is computed at most once.

    The benchmark files are read while the workflow is planned, so that a job's digest changes with
    the rows of its own shard and with nothing else.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._prepared = cache(partial(prepare_benchmark, config))
        self._job = cache(partial(decode_job, config))
        self._shard_digest = cache(self._digest_of_shard)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Plan":
        """Check a configuration and all benchmark files that it names.

        Raises:
            UserError: the first thing that is wrong.
        """
        plan = cls(parse_config(values))
        for benchmark in plan.benchmarks:
            plan.prepared(benchmark)
        return plan

    @property
    def benchmarks(self) -> list[str]:
        """Names in the order of the configuration."""
        return list(self.config.benchmarks)

    @property
    def runs(self) -> list[str]:
        """Names in the order of the configuration."""
        return list(self.config.runs)

    @property
    def protocols(self) -> list[str]:
        """Scoring protocols, `strict` first."""
        return list(self.config.protocols)

    @property
    def local_models(self) -> list[str]:
        """Folders of the models that are on this machine."""
        paths = {model.path for model in self.config.models.values()}
        return sorted(path for path in paths if Path(path).is_dir())

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
        return json.dumps({name: [r.method, r.models] for name, r in self.config.runs.items()})

    @cached_property
    def datasets_layout(self) -> str:
        """What the table of dataset statistics shows: each benchmark's rows and paper's figures."""
        tasks = self.config.benchmarks.items()
        parts = [
            [name, self.prepared(name).digest(), task.paper.model_dump()] for name, task in tasks
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    def shards(self, benchmark: str) -> list[int]:
        """Return the shard numbers of a benchmark."""
        return list(range(self.config.benchmarks[benchmark].shards))

    def source(self, benchmark: str) -> list[str]:
        """Return the files that a benchmark is made from."""
        task = self.config.benchmarks[benchmark]
        shots = [task.shots.file] if task.shots else []
        ids = [task.ids_file] if task.ids_file else []
        return [str(source_file(self.config, benchmark)), *shots, *ids]

    def prepared(self, benchmark: str) -> Prepared:
        """Return a benchmark's rows."""
        return self._prepared(benchmark)

    def shard_digest(self, benchmark: str, shard: int) -> str:
        """Return the digest of a shard's rows."""
        return self._shard_digest(benchmark, shard)

    def digest(self, benchmark: str, run: str, shard: int) -> str:
        """Return the digest of a decode job."""
        return self._job(benchmark, run).digest(self.shard_digest(benchmark, shard))

    def digests(self, benchmark: str, run: str) -> list[str]:
        """Return the digests of all shards of a run."""
        return [self.digest(benchmark, run, shard) for shard in self.shards(benchmark)]

    def _digest_of_shard(self, benchmark: str, shard: int) -> str:
        return shard_digest(self.prepared(benchmark).shard(shard))
