"""What a model's path must be, as far as can be told without loading it."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from adafuse.benchmarks.prompts import check_template
from adafuse.comparison.published import read_published
from adafuse.config.benchmarks import BenchmarkConfig, SourceConfig
from adafuse.config.config import Config
from adafuse.config.runs import ExperimentConfig, RunConfig
from adafuse.decoding.fusion import check_weights
from adafuse.errors import UserError, known
from adafuse.experiments.places import places
from adafuse.methods import METHODS, resolve
from adafuse.methods.selections import SELECTIONS, selection
from adafuse.models.files import check_pickled
from adafuse.models.spec import DeviceName
from adafuse.scoring.tasks import STRICT, task_named


def check_model(where: str, path: str, revision: str | None) -> None:
    """Check a model folder, or the form of a hub id, before anything is loaded.

    Args:
        where: names the setting in errors.
        path: folder or hub id.
        revision: of a hub model.

    Raises:
        UserError: no model folder, or a revision for one.
    """
    folder = Path(path)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UserError(
                f"{where}: {path!r} has no config.json; give a Hugging Face model folder"
            )
        if not any(folder.glob("tokenizer*")):
            raise UserError(f"{where}: {path!r} has no tokenizer; put its tokenizer.json there")
        if revision is not None:
            raise UserError(
                f"{where}: revision {revision!r} is for hub models, but {path!r} is a folder;"
                " remove it"
            )
    elif path.startswith((".", "/", "~")) or path.count("/") != 1:
        raise UserError(
            f"{where}: {path!r} is not a folder; give a model folder or a hub id org/name"
        )


def check_checkpoint(where: str, path: str, revision: str | None, model_type: str) -> None:
    """Check a model of a certain type as `check_model` does, and the type of a folder.

    Args:
        where: names the setting in errors.
        path: folder or hub id.
        revision: of a hub model.
        model_type: what the model's config.json must say that it is.

    Raises:
        UserError: no model folder, one of another type, or a revision for one.
    """
    check_model(where, path, revision)
    if Path(path).is_dir() and (found := _model_type(where, path)) != model_type:
        raise UserError(
            f"{where}: {path!r} holds a model of type {found!r}, not {model_type!r}; name one of"
            " that type"
        )


def _model_type(where: str, path: str) -> object:
    try:
        config = json.loads(Path(path, "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{where}: the config.json of {path!r} cannot be read: {error}") from None
    return config.get("model_type") if isinstance(config, dict) else None


def check_loading(name: str, config: Config) -> None:
    """Check a model's device against the GPUs that decode jobs ask for, and its weights' format.

    Raises:
        UserError: no such device, more GPUs than are asked for, or weights that may not be read.
    """
    model = config.models[name]
    if Path(model.path).is_dir():
        with _named(f"models.{name}"):
            check_pickled(model.path, allowed=model.allow_pickle)
    with _named("decode" if model.device is None else f"models.{name}"):
        text = model.device or config.decode.device
        device = DeviceName.parse(text)
        for key, gpu in _asked(name, config):
            _check_gpus(text, device, key, gpu)


def _asked(name: str, config: Config) -> Iterator[tuple[str, int]]:
    """Yield how many GPUs the jobs with a model may ask for, and the keys that say so."""
    for run_name, run in config.runs.items():
        if name in run.models and run.method in METHODS and METHODS[run.method].uses_models:
            if run.cluster.gpu is None:
                yield "decode.gpu", config.decode.gpu
            else:
                yield f"runs.{run_name}.cluster.gpu", run.cluster.gpu


def _check_gpus(text: str, device: DeviceName, key: str, gpu: int) -> None:
    # A job that asks for none may still use those of a workstation.
    if gpu >= device.gpus or (gpu == 0 and device.strategy is None):
        return
    least = f"{device.gpus} GPUs, counted from 0" if device.devices else f"{device.gpus} GPUs"
    raise UserError(
        f"device {text!r} needs at least {least}, but {key} is {gpu}; set it to as many GPUs as a"
        " job needs"
    )


@contextmanager
def _named(where: str) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


_TABLE_COLUMNS = ("run", "method", "models", "macro_average")
_CELL_ENDINGS = ("_low", "_high", "_n")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def check_benchmark(name: str, benchmark: BenchmarkConfig) -> None:
    """Check a benchmark against itself and the files that it names.

    Raises:
        UserError: the first thing that is wrong.
    """
    owner = f"benchmarks.{name}"
    if name in _TABLE_COLUMNS or name.endswith(_CELL_ENDINGS):
        raise UserError(f"benchmarks: {name!r} is also a column of the table; rename it")
    check_template(benchmark.prompt, owner)
    task_named(benchmark.metric, owner)
    _check_source(benchmark.source, owner)
    shots = benchmark.shots.file if benchmark.shots else None
    for file in (benchmark.source.file, shots, benchmark.ids_file):
        if file is not None and not Path(file).is_file():
            raise UserError(f"{owner}: file {file!r} does not exist; check its path")
    _check_choice(benchmark, owner)


def _check_choice(benchmark: BenchmarkConfig, owner: str) -> None:
    given = [key for key in ("ids", "ids_file") if getattr(benchmark, key) is not None]
    others = [key for key in ("limit", "sample") if getattr(benchmark, key) is not None]
    if len(given) > 1 or (given and others):
        both = " and ".join([*given, *others][:2])
        raise UserError(f"{owner}: {both} choose rows in two ways; give one of them")


def _check_source(source: SourceConfig, owner: str) -> None:
    if (source.file is None) == (source.dataset is None):
        raise UserError(f"{owner}.source needs a `file` or a `dataset`, one of them")
    if source.file is not None:
        _check_plain_file(source, owner)
    elif source.split is None:
        raise UserError(f"{owner}.source has no 'split'; add it, for instance split: test")
    elif source.answer_config is not None and source.fields.id is None:
        raise UserError(f"{owner}.source: answer_config joins rows by id; name fields.id")
    else:
        _check_place(str(source.dataset), source.revision, owner)


def _check_plain_file(source: SourceConfig, owner: str) -> None:
    for key in ("config", "answer_config", "split", "revision"):
        if getattr(source, key) is not None:
            raise UserError(f"{owner}.source: {key} is for a dataset, not for a file; remove it")


def _check_place(dataset: str, revision: str | None, owner: str) -> None:
    if Path(dataset).is_dir():
        if revision is not None:
            raise UserError(
                f"{owner}: revision {revision!r} is for hub datasets, but {dataset!r} is a folder;"
                " remove it"
            )
    elif dataset.startswith((".", "/", "~")) or dataset.count("/") != 1:
        raise UserError(
            f"{owner}: {dataset!r} is not a folder; give a dataset folder or a hub id org/name"
        )
    elif revision is not None and not _COMMIT.fullmatch(revision):
        raise UserError(
            f"{owner}: hub dataset {dataset!r} has revision {revision!r}, which is no commit; pin"
            " it with source: {revision: COMMIT}, 40 hexadecimal digits from the history of its"
            " files on the hub"
        )


def check_run(name: str, run: RunConfig, config: Config) -> None:
    """Check a run against its method and the rest of the configuration.

    Raises:
        UserError: the first thing that is wrong.
    """
    try:
        for model in run.models:
            if model not in config.models:
                raise UserError(known("model", model, list(config.models)))
        check_weights(run.weights, len(run.models))
        if run.method in SELECTIONS:
            _check_selection(run, config)
        elif run.method not in METHODS:
            raise UserError(known("method", run.method, [*METHODS, *SELECTIONS]))
        else:
            _check_method(run, config)
    except UserError as error:
        raise UserError(f"runs.{name}: {error}") from None


def _check_method(run: RunConfig, config: Config) -> None:
    method = resolve(run.method, run.options)
    method.check_models(len(run.models))
    options = method.options.model_dump()
    for option, kind in method.checkpoints.items():
        revision = options[f"{option}_revision"]
        check_checkpoint(f"options.{option}", options[option], revision, kind)
    if run.weights is not None and not method.uses_models:
        raise UserError(
            f"weights {list(run.weights)} change nothing in method {run.method}, which does not"
            " weigh its models; remove them"
        )
    if method.reads_answers:
        config.single_model_runs(run)


def _check_selection(run: RunConfig, config: Config) -> None:
    chosen = selection(run.method, run.options)
    if len(run.models) < 2 or len(set(run.models)) < len(run.models):
        raise UserError(f"method {run.method} needs at least 2 different models")
    for setting in ("weights", "max_rounds"):
        if (value := getattr(run, setting)) is not None:
            said = list(value) if isinstance(value, tuple) else value
            raise UserError(
                f"{setting} {said} changes nothing in method {run.method}, which decodes nothing"
                " itself; remove it"
            )
    candidates = chosen.candidates(config.single_model_runs(run))
    for candidate in candidates:
        if candidate not in config.runs:
            raise UserError(known("run", candidate, list(config.runs)))
        if config.runs[candidate].method in SELECTIONS:
            raise UserError(f"run {candidate!r} decodes nothing itself; name one that does")
    chosen.check(run.models, {each: config.runs[each].models for each in candidates})


WHOLE_PAPER = ("paper", "paper_toy")
"""Targets that make all experiments; the toy configuration's documentation uses the second."""

RULES = frozenset(WHOLE_PAPER) | {
    "all", "audit", "choose", "compare", "compare_runs", "datasets", "decode", "examples",
    "experiment", "merge", "prefetch", "prepare", "report", "score", "shard", "words_per_round",
}  # fmt: skip
"""The rules of the workflow. No experiment can have one of these names: it is a rule itself."""


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


def check_config(config: Config) -> None:
    """Check a configuration against itself and the files that it names.

    Raises:
        UserError: the first thing that is wrong.
    """
    _check_results(Path(config.results))
    for name, model in config.models.items():
        check_model(f"models.{name}", model.path, model.revision)
        check_loading(name, config)
    for name, benchmark in config.benchmarks.items():
        check_benchmark(name, benchmark)
    for name, run in config.runs.items():
        check_run(name, run, config)
    _check_protocols(config)
    if config.published_numbers is not None:
        read_published(Path(config.published_numbers))
    check_experiments(config)


def _check_results(folder: Path) -> None:
    existing = next(
        path for path in (folder.absolute(), *folder.absolute().parents) if path.exists()
    )
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(
            f"results folder {str(folder)!r} cannot be written because of {str(existing)!r};"
            " name another one as `results`"
        )


def _check_protocols(config: Config) -> None:
    if config.protocols[0] != STRICT or len(set(config.protocols)) != len(config.protocols):
        raise UserError(
            f"protocols is {list(config.protocols)}; write [strict] or [strict, published]"
        )
