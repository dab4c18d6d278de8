"""The main table and the experiments name runs and benchmarks that exist and fit together."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from adafuse.comparison.published import read_published
from adafuse.errors import UserError, known
from adafuse.experiments.places import places
from adafuse.methods import METHODS
from adafuse.pipeline.config import Config, ExperimentConfig
from adafuse.pipeline.paths import RULES
from adafuse.selection.registry import SELECTIONS


def check_experiments(config: Config) -> None:
    """Check what the configuration shows of its runs.

    Raises:
        UserError: the first thing that is wrong.
    """
    _check_development(config)
    _check_listed("main", config.main_runs, config.main_benchmarks, config)
    if "experiments" in config.targets and not config.experiments:
        raise UserError(
            f"targets is {list(config.targets)}, but there are no experiments; add some or remove"
            " experiments from it"
        )
    for name, experiment in config.experiments.items():
        owner = f"experiments.{name}"
        _check_target(name)
        _check_listed(owner, experiment.runs, experiment.benchmarks, config)
        _check_kind(owner, experiment, config)
        _check_published(owner, experiment, config)
    _check_choices(config)


def shown(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the (benchmark, run) of everything that the main table and the experiments show."""
    yield from ((name, run) for name in config.main_benchmarks for run in config.main_runs)
    for each in config.experiments.values():
        yield from ((name, run) for name in each.benchmarks for run in each.runs)


def _check_target(name: str) -> None:
    # Each experiment is a rule of its own.
    if not name.isidentifier():
        raise UserError(
            f"experiments: {name!r} cannot name a rule of the workflow; use letters, digits (not"
            " first) and _"
        )
    if name in RULES:
        raise UserError(f"experiments: {name!r} is another rule of the workflow; rename it")


def _check_listed(
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
    runs = {name: config.runs[name] for name in experiment.runs}
    idle = [name for name, run in runs.items() if run.method not in METHODS]
    if idle and experiment.kind in ("sweep", "runtime", "words_per_round"):
        raise UserError(f"{owner}: run {idle[0]!r} decodes nothing itself; remove it")
    match experiment.kind:
        case "sweep":
            places(owner, experiment.options, runs)
        case "runtime":
            _check_batch_sizes(owner, experiment, config)
        case "paired" if len(runs) < 2:
            raise UserError(
                f"{owner} tests pairs of runs, but {list(runs)} is only one; name at least two"
            )


def _check_batch_sizes(owner: str, experiment: ExperimentConfig, config: Config) -> None:
    first = experiment.benchmarks[0]
    for name in experiment.benchmarks:
        if config.batch_size(name) != config.batch_size(first):
            raise UserError(
                f"{owner}: benchmark {first!r} has batch_size {config.batch_size(first)}, {name!r}"
                f" {config.batch_size(name)}, and their times cannot be compared; give both the"
                " same"
            )


def _check_published(owner: str, experiment: ExperimentConfig, config: Config) -> None:
    if not experiment.published:
        return
    if experiment.kind != "scores":
        raise UserError(
            f"{owner}: published is for kind scores, not for {experiment.kind}; remove it"
        )
    if config.published_numbers is None:
        raise UserError(f"{owner}: published needs `published_numbers`; name their file")
    rows = [row.name for row in read_published(Path(config.published_numbers)).main.rows]
    for run, row in experiment.published.items():
        if run not in experiment.runs:
            raise UserError(f"{owner}.published: {known('run', run, list(experiment.runs))}")
        if row not in rows:
            raise UserError(f"{owner}.published: {known('row', row, rows)}")
