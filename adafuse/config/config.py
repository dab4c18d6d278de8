"""The workflow's configuration: its sections, and what holds between them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, WithJsonSchema, field_validator, model_validator

from adafuse.config.benchmarks import BenchmarkConfig
from adafuse.config.experiments import ExperimentConfig, MainConfig
from adafuse.config.runs import ClusterConfig, DecodeConfig, ModelConfig, RunConfig
from adafuse.config.sweep_axis import sweep_positions
from adafuse.decoding.gate import DEVELOPMENT
from adafuse.errors import UserError, unknown
from adafuse.methods import METHODS, resolve
from adafuse.methods.selections import SELECTIONS, Certified, selection
from adafuse.models.spec import SERVER, DeviceName, ModelSpec, check_servers
from adafuse.options import Located, PluginFile, Section, Text

LONGEST_NAME = 100
SAFE_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"

_SAME_TASK = (
    *("scorer", "prompt", "prompt_layout", "shots", "stop", "max_new_tokens", "within_budget"),
)
_TABLE_COLUMNS = ("run", "method", "models", "macro_average")
_CELL_ENDINGS = ("_low", "_high", "_n", "_cut", "_failed")


def _safe(name: str) -> str:
    if len(name) > LONGEST_NAME:
        raise ValueError(
            f"{name[:20]!r}... has {len(name)} characters; a name has at most {LONGEST_NAME}"
        )
    if name.endswith((".parquet", ".journal", ".json", ".jsonl")):
        raise ValueError(f"{name!r} ends like a file of results; rename it")
    if not re.fullmatch(SAFE_NAME, name):
        raise ValueError(
            f"{name!r} cannot name a file; use letters (a to z), digits, _, - and . (not first)"
        )
    return name


def _path(path: str) -> str:
    if found := [character for character in "{}\0" if character in path]:
        raise ValueError(f"{path!r} has a {found[0]!r}, which Snakemake cannot take; rename it")
    return path


Name = Annotated[
    str, AfterValidator(_safe), WithJsonSchema({"type": "string", "pattern": SAFE_NAME})
]


def _no_column(name: str) -> str:
    if name in _TABLE_COLUMNS or name.endswith(_CELL_ENDINGS):
        raise ValueError(f"{name!r} is also a column of the table; rename it")
    return name


def _rule(name: str) -> str:
    if not name.isidentifier():
        raise ValueError(
            f"{name!r} cannot name a rule of the workflow; use letters, digits (not first) and _"
        )
    return name


BenchmarkName = Annotated[Name, AfterValidator(_no_column)]
RuleName = Annotated[Name, AfterValidator(_rule)]


class Config(Section):
    """Everything that the workflow reads from its configuration file."""

    # The first field: those after it name what these files register.
    plugins: tuple[Annotated[PluginFile, AfterValidator(_path)], ...] = ()
    """Python files with methods, fusion rules or scorers of your own, such as `[mymethod.py]`: from
    the folder of the configuration, or else that in which Snakemake runs
    ([docs/extending.md](../docs/extending.md)); change it when you have some"""
    results: Annotated[Located, AfterValidator(_path)] = "results"
    """output folder; change it when two experiments must not share one"""
    note: Text | None = None
    """text above the main table; change it when readers must know something first"""
    models: dict[Name, ModelConfig] = Field(min_length=1)
    """models by name"""
    benchmarks: dict[BenchmarkName, BenchmarkConfig] = Field(min_length=1)
    """benchmarks by name, in the order of the table's columns"""
    runs: dict[Name, RunConfig] = Field(min_length=1)
    """runs by name, in the order of the table's rows; each is a method on a list of models"""
    main: MainConfig = MainConfig()
    """runs and benchmarks of the main table and the comparisons; all without it; change it when
    some runs do not belong in the main table"""
    experiments: dict[RuleName, ExperimentConfig] = Field(default_factory=dict)
    """further tables and figures by name, each a target (`snakemake figure_6`); names have letters,
    digits (not first) and `_`, and are not those of rules (`all`, `decode`, ...); change it when
    you need more than the main table"""
    targets: tuple[Literal["tables", "experiments", "report"], ...] = Field(
        ("tables", "report"), min_length=1
    )
    """what plain `snakemake` makes: `tables`, `experiments` (only if there are any), `report`, the
    pages for a browser ([docs/report.md](../docs/report.md)); change it when you always need the
    experiments, or do not need the report"""
    protocols: tuple[Literal["strict", "published"], ...] = Field(("strict",), min_length=1)
    """`[strict]`, or `[strict, published]`, which adds tables under `published` and an audit of the
    answers that only `published` accepts; change it when you compare with published numbers"""
    spm_sha256: Text | None = None
    """SHA-256 of the SentencePiece model of `translation`; change it when two machines must give
    the same spBLEU"""
    published_numbers: Located | None = None
    """file of the paper's numbers, for a table of their own: `config/published.yaml`; change it
    when you reproduce the paper"""
    decode: DecodeConfig = DecodeConfig()
    """how decode jobs run; change it when they run on a GPU"""
    cluster: ClusterConfig = ClusterConfig()
    """what decode jobs request from a cluster; change it when its limits differ, or an estimate is
    wrong"""

    container: Located | None = None
    """image for `--sdm apptainer`: an Apptainer file, or an address such as `docker://...`
    ([docs/hpc.md](../docs/hpc.md)); change it when jobs run in a container"""
    envmodules: tuple[Text, ...] = ()
    """environment modules that every job loads with `--sdm env-modules`; change it when your
    cluster's software comes as modules"""

    @field_validator("models", "benchmarks", "runs", "experiments")
    @classmethod
    def _names_are_apart(cls, named: dict[str, Section]) -> dict[str, Section]:
        first: dict[str, str] = {}
        for name in named:
            if (other := first.setdefault(name.lower(), name)) != name:
                raise ValueError(
                    f"the files of {other!r} and {name!r} are the same where case does not count,"
                    " as on macOS; rename one"
                )
        return named

    @field_validator("protocols")
    @classmethod
    def _strict_comes_first(cls, protocols: tuple[str, ...]) -> tuple[str, ...]:
        if protocols not in (("strict",), ("strict", "published")):
            raise ValueError("must be [strict] or [strict, published]")
        return protocols

    @model_validator(mode="after")
    def _sections_fit_each_other(self) -> Self:
        for name, run in self.runs.items():
            with at(f"runs.{name}"):
                self._check_run(run)
        with at("models"):
            check_servers(model for model in self.models.values() if model.serve is None)
        for name in self.models:
            self._check_gpus(name)
        for name, benchmark in self.benchmarks.items():
            for field in ("development", "calibration"):
                if (other := getattr(benchmark, field)) is not None:
                    with at(f"benchmarks.{name}.{field}"):
                        _check_known("benchmark", [other], self.benchmarks)
                        if other == name:
                            raise UserError(f"{name!r} names itself; name another benchmark")
        with at("main"):
            _check_known("run", self.main_runs, self.runs)
            _check_known("run", self.main.study, dict.fromkeys(self.main_runs))
            _check_known("benchmark", self.main_benchmarks, self.benchmarks)
        if "experiments" in self.targets and not self.experiments:
            raise UserError(
                f"targets is {list(self.targets)}, but there are no experiments; add some or remove"
                " experiments from it"
            )
        for name, experiment in self.experiments.items():
            with at(f"experiments.{name}"):
                self._check_experiment(experiment)
            if experiment.kind == "sweep":
                runs = {run: self.runs[run] for run in experiment.runs}
                sweep_positions(f"experiments.{name}", experiment.options, runs)
        self._check_development_rows()
        return self

    def _check_gpus(self, name: str) -> None:
        """Refuse fewer GPUs than the device of a model needs in the jobs that load it."""
        own = self.models[name].device
        text = own or self.decode.device
        device = DeviceName.parse(text)
        for run_name, run in self.runs.items():
            decodes = run.method in METHODS and METHODS[run.method].uses_models
            if name not in run.models or not decodes or not self._loads(run, name):
                continue
            key, gpu = "decode.gpu", self.decode.gpu
            if run.cluster.gpu is not None:
                key, gpu = f"runs.{run_name}.cluster.gpu", run.cluster.gpu
            # A job that asks for none may still use those of a workstation.
            if gpu >= device.gpus or (gpu == 0 and device.strategy is None):
                continue
            counted = ", counted from 0" if device.devices else ""
            raise UserError(
                f"{'decode' if own is None else f'models.{name}'}: device {text!r} needs at least"
                f" {device.gpus} GPUs{counted}, but {key} is {gpu}; set it to as many GPUs as a job"
                " needs"
            )

    def _loads(self, run: RunConfig, model: str) -> bool:
        """Whether some jobs of a run load a model."""
        served = self.models[model].server is not None and run.served
        return not served or not all(task.served for task in self.benchmarks.values())

    def _check_served(self, run: RunConfig) -> None:
        """Refuse a run that its models' servers cannot decode."""
        served = [name for name in run.models if self.models[name].server is not None]
        if not (served and run.served and run.method in METHODS):
            return
        try:
            resolve(run.method, run.options).check_served(served)
        except UserError as error:
            raise UserError(f"{error}, or set `served: false` for this run") from None
        if self.decode.engine == "reference":
            raise UserError(
                f"decode.engine is 'reference', but model {served[0]} is on a server, which is its"
                " engine; set `served: false` for this run, or engine to 'tree'"
            )

    def _check_run(self, run: RunConfig) -> None:
        _check_known("model", run.models, self.models)
        self._check_served(run)
        if run.method in SELECTIONS:
            chosen = selection(run.method, run.options)
            candidates = chosen.candidates(self.single_model_runs(run))
            _check_known("run", candidates, self.runs)
            for candidate in candidates:
                if self.runs[candidate].method in SELECTIONS:
                    raise UserError(f"run {candidate!r} decodes nothing; name a run that decodes")
            chosen.check(run.models, {name: self.runs[name].models for name in candidates})
        elif METHODS[run.method].reads_answers:
            self.single_model_runs(run)

    def _check_experiment(self, experiment: ExperimentConfig) -> None:
        _check_known("run", experiment.runs, self.runs)
        _check_known("benchmark", experiment.benchmarks, self.benchmarks)
        idle = [run for run in experiment.runs if self.runs[run].method not in METHODS]
        if idle and experiment.kind in ("sweep", "runtime", "words_per_round"):
            raise UserError(f"run {idle[0]!r} decodes nothing itself; remove it")
        fixed = [run for run in experiment.runs if not self.needs_fit(run)]
        if fixed and experiment.kind == "gates":
            raise UserError(
                f"run {fixed[0]!r} has no gate that the workflow fits (option gate: {DEVELOPMENT});"
                " remove it"
            )
        if experiment.published and self.published_numbers is None:
            raise UserError("published needs `published_numbers`; name their file")
        sizes = {name: self.batch_size(name) for name in experiment.benchmarks}
        if experiment.kind == "runtime" and len(set(sizes.values())) > 1:
            listed = ", ".join(f"{name!r} {size}" for name, size in sizes.items())
            raise UserError(
                f"the batch_size of its benchmarks differs ({listed}), so their times cannot be"
                " compared; give all the same batch_size"
            )

    def _shown_cells(self) -> list[tuple[str, str]]:
        cells = [*product(self.main_runs, self.main_benchmarks)]
        for experiment in self.experiments.values():
            cells += product(experiment.runs, experiment.benchmarks)
        return cells

    def tested_cells(self) -> dict[tuple[str, str], None]:
        """Return the decoded runs, with benchmarks, whose scores are shown or certify a run."""
        cells: dict[tuple[str, str], None] = {}
        for run, benchmark in self._shown_cells():
            spec, task = self.runs[run], self.benchmarks[benchmark]
            if spec.method in METHODS:
                cells[run, benchmark] = None
                continue
            chosen = selection(spec.method, spec.options)
            names = [benchmark, task.certified_on if isinstance(chosen, Certified) else None]
            candidates = chosen.candidates(self.single_model_runs(spec))
            cells |= dict.fromkeys(product(candidates, filter(None, names)))
        return cells

    def _check_development_rows(self) -> None:
        """Check that a run that needs development rows has them on all benchmarks of its tables."""
        for run, benchmark in self._shown_cells():
            method = SELECTIONS.get(self.runs[run].method)
            certified, task = method is Certified, self.benchmarks[benchmark]
            missing = (task.certified_on if certified else task.development) is None
            chosen = method is not None and method.development
            fitted = self.needs_fit(run)
            if (chosen or fitted) and missing:
                verb = "fit on" if fitted else "choose by"
                raise UserError(
                    f"runs.{run}: benchmark {benchmark!r} has no development rows to {verb}; set"
                    " its `development` to a benchmark that holds them"
                )
            if certified:
                self._check_calibration(run, benchmark)

    def _check_calibration(self, run: str, benchmark: str) -> None:
        """Check that a certificate from other rows is one for the same runs on the same task."""
        task, spec = self.benchmarks[benchmark], self.runs[run]
        assert task.certified_on is not None
        other = self.benchmarks[task.certified_on]
        for field in _SAME_TASK:
            if getattr(task, field) != getattr(other, field):
                raise UserError(
                    f"runs.{run}: {field} of {task.certified_on!r} is not that of {benchmark!r},"
                    " for which its rows are to certify a run; give both the same"
                )
        chosen = selection(spec.method, spec.options)
        for name in chosen.candidates(self.single_model_runs(spec)):
            apart = task.development not in (None, task.certified_on)
            if self.needs_fit(name) and not (apart and other.development == task.development):
                raise UserError(
                    f"runs.{run}: run {name!r} has a gate that learns from `development` rows;"
                    f" give {benchmark!r} other rows as `calibration`, and these the same"
                    " `development`"
                )

    def needs_fit(self, run: str) -> bool:
        """Whether the workflow fits a gate for a run on development rows."""
        chosen = self.runs[run]
        return chosen.method in METHODS and resolve(chosen.method, chosen.options).needs_fit

    @property
    def shown_experiments(self) -> dict[str, ExperimentConfig]:
        """The experiments that plain `snakemake` makes and the report shows."""
        return self.experiments if "experiments" in self.targets else {}

    @property
    def main_runs(self) -> list[str]:
        return list(self.runs if self.main.runs is None else self.main.runs)

    @property
    def main_benchmarks(self) -> list[str]:
        return list(self.benchmarks if self.main.benchmarks is None else self.main.benchmarks)

    @property
    def decoded_runs(self) -> list[str]:
        return [name for name, run in self.runs.items() if run.method in METHODS]

    @property
    def chosen_runs(self) -> list[str]:
        return [name for name, run in self.runs.items() if run.method in SELECTIONS]

    @property
    def fused_runs(self) -> list[str]:
        """Runs of the main table that decode with several models."""
        decoded = [name for name in self.main_runs if name in self.decoded_runs]
        return [name for name in decoded if len(self.runs[name].models) > 1]

    def compared(self, names: Sequence[str]) -> dict[str, tuple[str, tuple[str, ...], int | None]]:
        """Return method, models and most rounds of runs."""
        runs = {name: self.runs[name] for name in names}
        return {name: (run.method, run.models, run.max_rounds) for name, run in runs.items()}

    def model_specs(self, benchmark: str, run: str) -> tuple[ModelSpec, ...]:
        """Return how the models of a run are loaded: what one does not say is that of `decode`."""
        spec = self.runs[run]
        served = spec.served and self.benchmarks[benchmark].served
        plain = {"device": self.decode.device, "dtype": self.decode.dtype}
        without = {"serve"} if served else {"serve", *SERVER}
        own = (self.models[m].model_dump(exclude=without, exclude_none=True) for m in spec.models)
        return tuple(ModelSpec(**plain | each) for each in own)

    def batch_size(self, benchmark: str) -> int | Literal["auto"]:
        return self.benchmarks[benchmark].batch_size or self.decode.batch_size

    def single_model_runs(self, run: RunConfig) -> list[str]:
        """Return the run of method `single` of each model, with as many rounds as `run` has.

        Weights and options do not change a single model's text. A model must have one such run, so
        that there is no doubt which one to take.
        """
        return [self._single_model_run(run, model) for model in run.models]

    def _single_model_run(self, run: RunConfig, model: str) -> str:
        settings = ("single", (model,), run.max_rounds)
        found = [
            name
            for name, other in self.runs.items()
            if (other.method, other.models, other.max_rounds) == settings
        ]
        rounds = "" if run.max_rounds is None else f" and max_rounds {run.max_rounds}"
        if not found:
            raise UserError(
                f"method {run.method} needs each model's own answer; add a run of method single"
                f" with the model {model}{rounds}"
            )
        if len(found) > 1:
            raise UserError(
                f"method {run.method} needs one run of method single with the model"
                f" {model}{rounds}, but {' and '.join(map(repr, found))} are such runs; leave one"
                " of them"
            )
        return found[0]


def _check_known(kind: str, names: Sequence[str], choices: Mapping[str, object]) -> None:
    for name in names:
        if name not in choices:
            raise UserError(unknown(kind, name, list(choices)))


@contextmanager
def at(section: str) -> Iterator[None]:
    """Name the section in the errors of what is checked here."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{section}: {error}") from None
