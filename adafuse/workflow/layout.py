"""Every path under the results folder."""

import hashlib
import logging
from dataclasses import dataclass
from itertools import chain, count, filterfalse
from pathlib import Path

from adafuse.errors import UserError

logger = logging.getLogger(__name__)


def config_variable(path: Path) -> str:
    """Return the variable that holds the SHA-256 of the configuration at a path."""
    return f"ADAFUSE_CONFIG_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file; "" if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class ResultsLayout:
    """The paths of a results folder; a name may be a wildcard of Snakemake, such as "{run}"."""

    results: str | Path

    def _path(self, *parts: str) -> Path:
        return Path(self.results, *parts)

    @property
    def config(self) -> Path:
        """The resolved configuration, which the steps of the workflow read."""
        return self._path("config.json")

    @property
    def commits(self) -> Path:
        """The record of the hub commits that were downloaded."""
        return self._path("prefetched.json")

    @property
    def model_files(self) -> Path:
        """The record of the digests of models' files, so that they are read once."""
        return self._path("model_files.json")

    def source(self, name: str) -> Path:
        return self._path("sources", f"{name}.jsonl")

    def rows(self, benchmark: str) -> Path:
        return self._path("benchmarks", benchmark, "rows.jsonl")

    def shard_rows(self, benchmark: str, shard: int | str) -> Path:
        return self._path("benchmarks", benchmark, "shards", f"{shard}.jsonl")

    @property
    def traces(self) -> Path:
        return self._path("traces")

    def trace(self, benchmark: str, run: str) -> Path:
        return self._path("traces", benchmark, f"{run}.parquet")

    def shard_trace(self, benchmark: str, run: str, shard: int | str) -> Path:
        return self._path("traces", benchmark, run, f"{shard}.parquet")

    def pilot(self, benchmark: str, run: str) -> Path:
        """The trace of the rows that `adafuse plan --pilot` decoded."""
        return self._path("traces", benchmark, run, ".pilot", "rows.parquet")

    def gate(self, benchmark: str, run: str) -> Path:
        """What a run has learned from the rows of a benchmark."""
        return self._path("gates", benchmark, f"{run}.json")

    def score(self, protocol: str, benchmark: str, run: str) -> Path:
        return self._path("scores", protocol, benchmark, f"{run}.json")

    def outcomes(self, protocol: str, benchmark: str, run: str) -> Path:
        return self.score(protocol, benchmark, run).with_suffix(".outcomes.parquet")

    def table(self, file: str) -> Path:
        return self._path("tables", file)

    def experiment(self, name: str, suffix: str) -> Path:
        """The numbers or the figure of an experiment: csv, svg or png."""
        return self._path("experiments", f"{name}.{suffix}")

    @property
    def report(self) -> Path:
        return self._path("report")

    def report_data(self, benchmark: str) -> Path:
        return self._path("report", "data", benchmark)

    def server(self, model: str) -> Path:
        """What says where the server of a model is, for as long as a job needs it."""
        return self._path("servers", f"{model}.json")

    def log(self, *step: str) -> Path:
        return self._path("logs", *step[:-1], f"{step[-1]}.log")

    @property
    def card(self) -> Path:
        """What makes the traces a data set of the hub."""
        return self._path("traces", "README.md")

    @property
    def logs(self) -> Path:
        return self._path("logs")

    def put_aside(self, path: Path) -> None:
        """Move what the configuration does not make to `orphans/`, where nothing is overwritten."""
        aside = self._path("orphans", str(path.relative_to(self.results)))
        names = (aside.with_name(f"{aside.stem}.{n}{aside.suffix}") for n in count(2))
        aside = next(filterfalse(Path.exists, chain([aside], names)))
        logger.warning("%s is not made by this configuration: moved to %s", path, aside)
        try:
            aside.parent.mkdir(parents=True, exist_ok=True)
            path.replace(aside)
        except OSError as error:
            raise UserError(
                f"{str(path)!r} cannot be moved to {str(aside)!r} ({error.strerror}); it is not of"
                " this configuration, so move it yourself"
            ) from None
