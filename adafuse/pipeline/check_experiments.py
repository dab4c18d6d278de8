"""The main table and the experiments name runs and benchmarks that exist and fit together."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from adafuse.comparison.published import read_published
from adafuse.errors import UserError, known
from adafuse.methods import METHODS, resolve
from adafuse.pipeline.config import Config, ExperimentConfig
from adafuse.selection.registry import SELECTIONS


def check_experiments(config: Config) -> None:
    """Check what the configuration shows of its runs.

    Raises:
        UserError: the first thing that is wrong.
    """
    _check_development(config)
    _check_names("main", config.main_runs, config.main_benchmarks, config)
    for name, experiment in config.experiments.items():
        owner = f"experiments.{name}"
        _check_names(owner, experiment.runs, experiment.benchmarks, config)
        _check_kind(owner, experiment, config)
        _check_published(owner, experiment, config)
    _check_choices(config)


def shown(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the (benchmark, run) of everything that the main table and the experiments show."""
    yield from ((name, run) for name in config.main_benchmarks for run in config.main_runs)
    for each in config.experiments.values():
        yield from ((name, run) for name in each.benchmarks for run in each.runs)


def _check_names(
    owner: str, runs: Sequence[str], benchmarks: Sequence[str], config: Config
) -> None:
    for kind, names, there in (
        ("run", runs, list(config.runs)),
        ("benchmark", benchmarks, list(config.benchmarks)),
    ):
        if odd := [name for name in names if name not in there]:
            raise UserError(f"{owner}: {known(kind, odd[0], there)}")
        if twice := [name for name in names if names.count(name) > 1]:
            raise UserError(f"{owner}: {kind} {twice[0]!r} is listed twice; remove one")


def _check_development(config: Config) -> None:
    for name, task in config.benchmarks.items():
        other = task.development
        if other is not None and other not in config.benchmarks:
            names = list(config.benchmarks)
            raise UserError(f"benchmarks.{name}.development: {known('benchmark', other, names)}")
        if other == name:
            raise UserError(
                f"benchmarks.{name}.development names itself; name a benchmark of other rows"
            )


def _check_choices(config: Config) -> None:
    for benchmark, run in shown(config):
        method = SELECTIONS.get(config.runs[run].method)
        chooses = method is not None and method.development
        if chooses and config.benchmarks[benchmark].development is None:
            raise UserError(
                f"runs.{run}: benchmark {benchmark!r} has no development rows to choose by; set its"
                " `development` to a benchmark that holds them"
            )


def _check_kind(owner: str, experiment: ExperimentConfig, config: Config) -> None:
    if (experiment.kind == "sweep") != bool(experiment.options):
        raise UserError(
            f"{owner}: options is {list(experiment.options)}; name the swept options for kind"
            " sweep, and none for another kind"
        )
    for name in experiment.runs:
        run = config.runs[name]
        decodes = run.method in METHODS
        if not decodes and experiment.kind in ("sweep", "runtime", "words_per_round"):
            raise UserError(f"{owner}: run {name!r} decodes nothing itself; remove it")
        if experiment.kind == "sweep":
            options = resolve(run.method, run.options).options.model_dump()
            if not options.keys() & set(experiment.options):
                raise UserError(
                    f"{owner}: run {name!r} has none of the options {list(experiment.options)};"
                    " remove it"
                )


def _check_published(owner: str, experiment: ExperimentConfig, config: Config) -> None:
    if not experiment.published:
        return
    if config.published_numbers is None:
        raise UserError(f"{owner}: published needs `published_numbers`; name their file")
    rows = [row.name for row in read_published(Path(config.published_numbers)).main.rows]
    for run, row in experiment.published.items():
        if run not in experiment.runs:
            raise UserError(f"{owner}.published: {known('run', run, list(experiment.runs))}")
        if row not in rows:
            raise UserError(f"{owner}.published: {known('row', row, rows)}")
