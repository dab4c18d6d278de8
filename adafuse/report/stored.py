"""What of a configuration lies in its results folder, for the report and the explorer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from adafuse.benchmarks.shards import read_prepared
from adafuse.config.config import Config
from adafuse.methods import METHODS, resolve
from adafuse.metrics.registry import SCORERS
from adafuse.report.explorer import BenchmarkEntry, Manifest, Question, RunEntry, RunFiles
from adafuse.storage.parquet import read_metadata
from adafuse.workflow.jobs import answer_runs
from adafuse.workflow.layout import ResultsLayout
from adafuse.workflow.plan import Plan
from adafuse.workflow.stamps import intact
from adafuse.workflow.steps import Job, reported_runs, trace_job


@dataclass(frozen=True, slots=True)
class StoredResults:
    """Runs by benchmark that a report shows, and where their files are."""

    config: Config
    runs: Mapping[str, Sequence[str]]

    @property
    def layout(self) -> ResultsLayout:
        """The paths of the results folder."""
        return ResultsLayout(self.config.results)

    @classmethod
    def asked(cls, config: Config) -> "StoredResults":
        """Return what the workflow's report shows, whether it is there or not."""
        return cls(config, reported_runs(config))

    @classmethod
    def in_folder(cls, config: Config) -> "StoredResults":
        """Return everything of a configuration that is in its results folder."""
        layout = ResultsLayout(config.results)
        runs = {
            name: [run for run in config.runs if layout.trace(name, run).is_file()]
            for name in config.benchmarks
            if layout.rows(name).is_file()
        }
        return cls(config, {name: present for name, present in runs.items() if present})

    def stale(self, plan: Plan) -> list[Path]:
        """Return rows, traces and scores that are not what a plan makes of the files of today."""
        found: list[Path] = []
        for name, runs in self.runs.items():
            jobs = [Job.of("prepare", name), *(trace_job(self.config, name, run) for run in runs)]
            jobs += [Job.of("score", p, name, run) for p in self.config.protocols for run in runs]
            found += [path for job in jobs for path in plan.stale(job)]
        return found

    def questions(self, benchmark: str) -> list[Question]:
        """Return the questions without few-shot examples, and the accepted answers."""
        rows = read_prepared(intact(self.layout.rows(benchmark)))
        return [Question(row.id, row.question or row.prompt, row.answers) for row in rows]

    def files(self, benchmark: str) -> list[RunFiles]:
        """Return the trace of each run on a benchmark, and its outcomes where it was scored."""
        files = []
        for run in self.runs[benchmark]:
            outcomes: dict[str, Path] = {
                protocol: intact(path)
                for protocol in self.config.protocols
                if (path := self.layout.outcomes(protocol, benchmark, run)).is_file()
            }
            files.append(RunFiles(run, self.trace(benchmark, run), outcomes))
        return files

    def trace(self, benchmark: str, run: str) -> Path:
        """Return where a run's merged trace is."""
        return intact(self.layout.trace(benchmark, run))

    def answers(self, benchmark: str, run: str) -> list[Path]:
        """Return the traces of the answers that a run, or the one that it took, starts from."""
        taken = read_metadata(self.trace(benchmark, run)).get("rows_from", [run])
        names = [name for each in taken for name in answer_runs(self.config, each)]
        return [self.layout.trace(benchmark, name) for name in names]

    def manifest(self) -> Manifest:
        """Return what the explorer's menus show."""
        benchmarks = [self._entry(name, runs) for name, runs in self.runs.items()]
        entries = {
            name: RunEntry(run.method, run.models, tau_of(run.method, run.options))
            for name, run in self.config.runs.items()
        }
        models, note = list(self.config.models), self.config.note
        return Manifest(benchmarks, entries, models, self.config.protocols, note)

    def _entry(self, benchmark: str, runs: Sequence[str]) -> BenchmarkEntry:
        metric = SCORERS[self.config.benchmarks[benchmark].scorer].primary
        return BenchmarkEntry(
            name=benchmark,
            n=len(self.questions(benchmark)),
            runs=tuple(runs),
            label=metric.label,
            binary=metric.binary,
            merit=metric.merit(1),
        )


def tau_of(method: str, options: Mapping[str, object]) -> float | None:
    """Return the threshold of a method with these options; None if it has none."""
    name = METHODS[method].threshold if method in METHODS else None
    return getattr(resolve(method, options).options, name) if name else None
