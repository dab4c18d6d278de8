"""The steps of the workflow: what each writes, what it reads, and what its outputs depend on.

This is the only table of them. The plan, the rules of Snakemake, the commands `adafuse step` and
the status are made from it. A step's files and folders are those of `ResultsLayout`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from adafuse.config.config import Config
from adafuse.methods.selections import Certified
from adafuse.metrics.scorer import PUBLISHED, STRICT
from adafuse.version import REPORT_VERSION
from adafuse.workflow import digest
from adafuse.workflow.choose import ballot
from adafuse.workflow.digest import Digests
from adafuse.workflow.jobs import answer_runs, gate_rows, started_servers
from adafuse.workflow.layout import ResultsLayout


class Job(NamedTuple):
    """A step for some values of its wildcards, in their order."""

    step: str
    values: tuple[str, ...]

    @classmethod
    def of(cls, step: str, *values: str | int) -> "Job":
        return cls(step, tuple(map(str, values)))


Cells = Iterable[tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step: a rule of Snakemake, and a command `adafuse step`.

    All functions but `cells` take a value for each wildcard after what is named here.
    """

    wildcards: tuple[str, ...] = ()
    cells: Callable[[Config], Cells] = lambda config: [()]
    """of the configuration: the values that its wildcards take together"""
    outputs: Callable[..., dict[str, Path]]
    """of the layout: its files, by the name of the command's parameter"""
    reads: Callable[..., list[Job]] = lambda config, *cell: []
    """of the configuration: the jobs whose outputs are its inputs"""
    depends: Callable[..., list[Any]] = lambda digests, *cell: []
    """of the digests: what its key depends on besides the keys of the jobs that it reads"""
    title: str | None = None
    """what `adafuse step summary` and `snakemake --report` call its outputs"""


def trace_job(config: Config, benchmark: str, run: str) -> Job:
    """Return the job that makes the trace of a run on a benchmark."""
    return Job.of("choose" if run in config.chosen_runs else "merge", benchmark, run)


def gate_jobs(config: Config, cells: Cells) -> list[Job]:
    """Return the jobs that fit the gates of some runs on benchmarks, as far as these need one."""
    fitted = [(gate_rows(config, benchmark, run), run) for benchmark, run in cells]
    return [Job.of("fit", rows, run) for rows, run in fitted if rows is not None]


def table_jobs(config: Config) -> list[Job]:
    """Return the jobs that make the tables."""
    names = ("compare", "audit", "datasets", "compare_runs", "certificates", "words_per_round")
    return [Job.of(name) for name in names if [*STEPS[name].cells(config)]]


def answer_traces(config: Config, cells: Cells) -> list[Job]:
    """Return the jobs that make the traces of the answers that some runs start from.

    A choice between runs costs what the one that it takes costs.
    """
    read = [
        trace_job(config, name, answer)
        for name, run in cells
        for each in (ballot(config, name, run).candidates if run in config.chosen_runs else [run])
        for answer in answer_runs(config, each)
    ]
    return [*dict.fromkeys(read)]


def server_jobs(config: Config, benchmark: str, run: str) -> list[Job]:
    """Return the jobs that start the servers which decoding with a run needs."""
    return [Job.of("server", model) for model in started_servers(config, benchmark, run)]


def _benchmarks(config: Config) -> Cells:
    return product(config.benchmarks)


def _shards(config: Config) -> Cells:
    tasks = config.benchmarks.items()
    return [(name, str(shard)) for name, task in tasks for shard in range(task.shards)]


def _decode_reads(config: Config, benchmark: str, run: str, shard: str) -> list[Job]:
    answers = [Job.of("decode", benchmark, name, shard) for name in answer_runs(config, run)]
    before = [Job.of("shard", benchmark, shard), *answers, *gate_jobs(config, [(benchmark, run)])]
    return before + server_jobs(config, benchmark, run)


def _merge_reads(config: Config, benchmark: str, run: str) -> list[Job]:
    shards = range(config.benchmarks[benchmark].shards)
    decoded = [Job.of("decode", benchmark, run, shard) for shard in shards]
    return decoded + [Job.of("shard", benchmark, shard) for shard in shards]


def _choose_reads(config: Config, benchmark: str, run: str) -> list[Job]:
    choices = ballot(config, benchmark, run)
    traces = [trace_job(config, benchmark, name) for name in choices.candidates]
    return traces + [Job.of("score", STRICT, *cell) for cell in choices.evidence]


def _main_scores(config: Config) -> list[Job]:
    cells = product(config.protocols, config.main_benchmarks, config.main_runs)
    return [Job.of("score", *cell) for cell in cells]


def _fused_traces(config: Config) -> list[Job]:
    cells = product(config.main_benchmarks, config.fused_runs)
    return [trace_job(config, *cell) for cell in cells]


def _case_study_reads(config: Config) -> list[Job]:
    cells = list(product(config.main_benchmarks, config.main_runs))
    rows = [Job.of("prepare", name) for name in config.main_benchmarks]
    scores = [Job.of("score", STRICT, *cell) for cell in cells]
    return [*rows, *(trace_job(config, *cell) for cell in cells), *scores]


def certified_cells(config: Config) -> Cells:
    """Return the benchmarks and runs of the main table that are chosen with a certificate."""
    runs = [name for name in config.main_runs if config.runs[name].method == Certified.name]
    return product(config.main_benchmarks, runs)


def _dataset_settings(digests: Digests) -> list[Any]:
    tasks = {name: digests.config.benchmarks[name] for name in digests.config.main_benchmarks}
    papers = [[name, task.paper.model_dump()] for name, task in tasks.items()]
    return [REPORT_VERSION, papers, [digests.prepared(name).duplicates for name in tasks]]


_TRACE_KINDS = ("runtime", "words_per_round", "frontier")  # experiments that read traces
_SCORE_KINDS = ("scores", "sweep", "paired", "frontier")  # and those that read scores


def _experiment_reads(config: Config, name: str) -> list[Job]:
    section = config.experiments[name]
    cells = list(product(section.benchmarks, section.runs))
    jobs = gate_jobs(config, cells) if section.kind == "gates" else []
    if section.kind in _TRACE_KINDS:
        jobs += [trace_job(config, *cell) for cell in cells if cell[1] in config.decoded_runs]
    if section.kind == "frontier":
        jobs += [job for job in answer_traces(config, cells) if job not in jobs]
    if section.kind in _SCORE_KINDS:
        jobs += [
            Job.of("score", protocol, *cell) for protocol in config.protocols for cell in cells
        ]
    return jobs


def reported_runs(config: Config) -> dict[str, list[str]]:
    """Return the runs by benchmark that the report shows: of the main table and experiments."""
    runs = dict.fromkeys(product(config.main_benchmarks, config.main_runs))
    for section in config.shown_experiments.values():
        if section.kind in _SCORE_KINDS:  # those that only time runs have no scores
            runs |= dict.fromkeys(product(section.benchmarks, section.runs))
    return {
        name: [run for run in config.runs if (name, run) in runs]
        for name in dict.fromkeys(name for name, _ in runs)
    }


def _example_reads(config: Config, benchmark: str) -> list[Job]:
    runs = reported_runs(config).get(benchmark, [])
    traces = [trace_job(config, benchmark, run) for run in runs]
    scores = [Job.of("score", *cell) for cell in product(config.protocols, [benchmark], runs)]
    return [Job.of("prepare", benchmark), *traces, *scores]


def _report_reads(config: Config) -> list[Job]:
    names = reported_runs(config)
    read = [
        job for name in names for job in (Job.of("examples", name), *_example_reads(config, name))
    ]
    shown = [(name, run) for name, runs in names.items() for run in runs]
    read += [job for job in answer_traces(config, shown) if job not in read]
    figures = [Job.of("experiment", name) for name in config.shown_experiments]
    return table_jobs(config) + read + figures


def _table_settings(digests: Digests) -> list[Any]:
    config = digests.config
    names = [config.main_benchmarks, config.protocols]
    return [REPORT_VERSION, digest.table_settings(config), names]


def _table(name: str) -> Callable[[ResultsLayout], dict[str, Path]]:
    return lambda at: {"csv": at.table(f"{name}.csv"), "markdown": at.table(f"{name}.md")}


STEPS: dict[str, Step] = {
    "prepare": Step(
        wildcards=("benchmark",),
        cells=_benchmarks,
        outputs=lambda at, *cell: {"rows": at.rows(*cell)},
        depends=lambda digests, name: [digest.prepared_digest(digests.prepared(name))],
    ),
    # Made from the source, too, and not from the output of `prepare`: it changes with its own rows.
    "shard": Step(
        wildcards=("benchmark", "shard"),
        cells=_shards,
        outputs=lambda at, *cell: {"rows": at.shard_rows(*cell)},
        depends=lambda digests, name, shard: [digests.shard_digest(name, int(shard))],
    ),
    # It ends when the server is ready; the server ends after the last job that reads its file.
    "server": Step(
        wildcards=("model",),
        cells=lambda config: [(name,) for name, model in config.models.items() if model.serve],
        outputs=lambda at, model: {"server": at.server(model)},
    ),
    "fit": Step(
        wildcards=("benchmark", "run"),
        cells=lambda config: [
            each.values for each in gate_jobs(config, product(config.benchmarks, config.runs))
        ],
        outputs=lambda at, *cell: {"gate": at.gate(*cell)},
        reads=lambda config, *cell: [Job.of("prepare", cell[0]), *server_jobs(config, *cell)],
        depends=lambda digests, *cell: [digests.fit_digest(*cell)],
    ),
    "decode": Step(
        wildcards=("benchmark", "run", "shard"),
        cells=lambda config: [
            (name, run, shard) for name, shard in _shards(config) for run in config.decoded_runs
        ],
        outputs=lambda at, *cell: {"trace": at.shard_trace(*cell)},
        reads=_decode_reads,
        # Its key is `Digests.digest`, which also stands in the trace.
    ),
    "merge": Step(
        wildcards=("benchmark", "run"),
        cells=lambda config: product(config.benchmarks, config.decoded_runs),
        outputs=lambda at, *cell: {"trace": at.trace(*cell)},
        reads=_merge_reads,
    ),
    "choose": Step(
        wildcards=("benchmark", "run"),
        cells=lambda config: product(config.benchmarks, config.chosen_runs),
        outputs=lambda at, *cell: {"trace": at.trace(*cell)},
        reads=_choose_reads,
        depends=lambda digests, benchmark, run: [
            digest.scoring_version(digests.config.benchmarks[benchmark].scorer),
            digest.choice_settings(digests.config, run),
        ],
    ),
    "score": Step(
        wildcards=("protocol", "benchmark", "run"),
        cells=lambda config: product(config.protocols, config.benchmarks, config.runs),
        outputs=lambda at, *cell: {"score": at.score(*cell), "outcomes": at.outcomes(*cell)},
        reads=lambda config, protocol, benchmark, run: [
            Job.of("prepare", benchmark),
            trace_job(config, benchmark, run),
        ],
        depends=lambda digests, *cell: [*cell, *digests.score_settings(cell[1])],
    ),
    "compare": Step(
        outputs=lambda at: {
            **_table("main")(at),
            "metrics_csv": at.table("metrics.csv"),
            "metrics_markdown": at.table("metrics.md"),
        },
        reads=_main_scores,
        depends=_table_settings,
        title="main, strict",
    ),
    "audit": Step(
        cells=lambda config: [()] * (PUBLISHED in config.protocols),
        outputs=lambda at: _table("audit")(at) | {"published": at.table("main_published.csv")},
        reads=_main_scores,
        depends=_table_settings,
        title="audit",
    ),
    "compare_runs": Step(
        outputs=lambda at: {
            **_table("comparison")(at),
            "gain_csv": at.table("gain.csv"),
            "gain_markdown": at.table("gain.md"),
        },
        reads=_main_scores,
        depends=lambda digests: [REPORT_VERSION, digest.runs_settings(digests.config)],
        title="paired comparisons",
    ),
    "certificates": Step(
        cells=lambda config: [()] * bool([*certified_cells(config)]),
        outputs=_table("certificates"),
        reads=lambda config: [Job.of("choose", *cell) for cell in certified_cells(config)],
        depends=lambda digests: [REPORT_VERSION, [*certified_cells(digests.config)]],
        title="certificates",
    ),
    "words_per_round": Step(
        outputs=lambda at: {"csv": at.table("words_per_round.csv")},
        reads=_fused_traces,
        depends=lambda digests: [REPORT_VERSION],
        title="words per round",
    ),
    "datasets": Step(
        outputs=_table("datasets"),
        reads=lambda config: [Job.of("prepare", name) for name in config.main_benchmarks],
        depends=_dataset_settings,
        title="data sets",
    ),
    # Only when it is asked for by its name.
    "case_study": Step(
        outputs=lambda at: {"markdown": at.table("case_study.md")},
        reads=_case_study_reads,
        depends=lambda digests: [REPORT_VERSION, digest.runs_settings(digests.config)],
    ),
    "experiment": Step(
        wildcards=("experiment",),
        cells=lambda config: product(config.experiments),
        outputs=lambda at, name: {end: at.experiment(name, end) for end in ("svg", "csv", "png")},
        reads=_experiment_reads,
        depends=lambda digests, name: [
            REPORT_VERSION,
            digest.experiment_settings(digests.config, name),
        ],
        title="experiment",
    ),
    # A job per benchmark, so that a changed run rewrites only its examples.
    "examples": Step(
        wildcards=("benchmark",),
        cells=_benchmarks,
        outputs=lambda at, *cell: {"folder": at.report_data(*cell)},
        reads=_example_reads,
        depends=lambda digests, name: [REPORT_VERSION, reported_runs(digests.config).get(name)],
    ),
    "report": Step(
        outputs=lambda at: {
            name: at.report / f"{name}.html" for name in ("index", "explorer", "failures")
        },
        reads=_report_reads,
        depends=lambda digests: [REPORT_VERSION, digest.reported_config(digests.config)],
        title="report",
    ),
}


def listing(config: Config) -> dict[str, Path]:
    """Return where what lies, for people: its name with the file or folder that holds it."""
    layout = ResultsLayout(config.results)
    titled = [(step.title, step) for step in STEPS.values() if step.title and not step.wildcards]
    files = {
        f"{title} ({name})": path
        for title, step in titled
        if [*step.cells(config)]
        for name, path in step.outputs(layout).items()
    }
    folders = ("scores", "traces", "benchmarks", "logs")
    inside = {name: Path(config.results, name) for name in folders}
    return {**files, **inside, "resolved configuration": layout.config}
