"""Reading a configuration: its `use` files and sweeps, its form, and the files that it names."""

import copy
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from adafuse.config.benchmarks import PIN, BenchmarkConfig
from adafuse.config.config import Config, at
from adafuse.config.runs import ModelConfig, RunConfig
from adafuse.errors import UserError, unknown
from adafuse.methods import METHODS, resolve
from adafuse.metrics.published import read_published
from adafuse.models.adapters import check_folder
from adafuse.models.files import check_pickled, check_whole
from adafuse.models.hub import check_path
from adafuse.models.spec import GGUF
from adafuse.options import parse, sentence
from adafuse.storage.files import located, read_text
from adafuse.storage.yaml_files import parse_json, parse_yaml


def parse_config(values: Mapping[str, Any]) -> Config:
    """Check everything that can be known before any row is read or anything is written.

    Raises:
        UserError: the first thing that is wrong, with the value and the fix.
    """
    config = _typed(values)
    for name, model in config.models.items():
        with at(f"models.{name}"):
            _check_model(model)
    for name, benchmark in config.benchmarks.items():
        with at(f"benchmarks.{name}"):
            _check_benchmark(benchmark)
    for name, run in config.runs.items():
        with at(f"runs.{name}"):
            _check_checkpoints(run)
    check_published(config)
    return config


def read_config(path: Path) -> Config:
    """Read a configuration: the one that the workflow stored, or one for Snakemake (YAML).

    The files that it names are not looked at; the workflow did so when it started.
    """
    return _typed(read_config_values(path))


def to_json(config: Config) -> str:
    return json.dumps(config.model_dump(mode="json"), ensure_ascii=False, indent=2)


def _typed(values: Mapping[str, Any]) -> Config:
    return parse(Config, with_sweeps(with_used_files(values)))


def read_values(path: Path, kind: str, page: str) -> dict[str, Any]:
    """Read a file of YAML or JSON that holds keys."""
    name = f"{kind} {str(path)!r}"
    text = read_text(path, kind)
    try:
        # YAML is slow to read, and does not take every string that JSON does.
        values = parse_json(text) if path.suffix.lower() == ".json" else parse_yaml(text, str(path))
    except (ValueError, yaml.YAMLError) as error:
        raise UserError(f"{name} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise UserError(f"{name} holds no keys; see {page}")
    return values


def read_config_values(path: Path) -> dict[str, Any]:
    """Read a configuration file; plug-ins beside it get the path from where we are."""
    values = read_values(path, "configuration", "config/README.md")
    for part in (values, *values.values()):  # of a module of Snakemake, it may be a section
        if isinstance(part, dict) and isinstance(files := part.get("plugins"), list):
            part["plugins"] = [_beside(path, file) for file in files]
    return values


def no_file(kind: str, names: Iterable[str]) -> str | None:
    """Say which name is no file; None if all are files."""
    for name in names:
        if not os.path.isfile(name):
            what = "is a folder" if os.path.isdir(name) else "does not exist"
            return f"{kind} {name!r} {what}"
    return None


def read_configs(files: Sequence[Path]) -> Config:
    """Read and check configurations for Snakemake, of which later ones change earlier ones."""
    if len(files) == 1:
        return parse_config(read_config_values(files[0]))
    from snakemake.utils import update_config

    values = dict[str, Any]()  # in which sections that YAML shares (&, *) become two
    for file in files:
        update_config(values, read_config_values(file))
    return parse_config(values)


def _beside(config: Path, file: Any) -> Any:
    if not isinstance(file, str) or not file:
        return file
    plain = located(file)
    beside = os.path.normpath(os.path.join(config.parent, plain))
    if not os.path.exists(beside):
        return plain
    if os.path.exists(plain) and not os.path.samefile(plain, beside):
        raise UserError(
            f"config: plugins: {file!r} is {plain!r} as well as {beside!r}, beside the"
            " configuration; rename one of them"
        )
    return beside


def with_sweeps(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration in which every run with a `sweep` is a run per value.

    A run NAME with `sweep: {tau: [0.5, 0.7]}` becomes NAME_0.5 and NAME_0.7; several options give
    every combination. Where the main table, an experiment or a choice between runs lists NAME, it
    stands for all of them. A sweep of another form is left for validation to refuse.
    """
    changed = copy.deepcopy(dict(values))
    runs, experiments = changed.get("runs"), changed.get("experiments")
    if not isinstance(runs, dict):
        return changed
    members = {name: _members(name, run) for name, run in runs.items()}
    changed["runs"] = {}
    for group in members.values():
        if twice := [name for name in group if name in changed["runs"]]:
            raise UserError(f"runs: there are two runs {twice[0]!r} after sweeps; rename one")
        changed["runs"] |= group
    listings = [*experiments.values()] if isinstance(experiments, dict) else []
    listings += [run.get("options") for run in changed["runs"].values() if isinstance(run, dict)]
    for section, key in product((changed.get("main"), *listings), ("runs", "study")):
        if isinstance(section, dict) and isinstance(names := section.get(key), list):
            section[key] = [run for name in names for run in members.get(str(name), [name])]
    return changed


def _members(name: Any, run: Any) -> dict[Any, Any]:
    sweep = run.get("sweep") if isinstance(run, dict) else None
    if not isinstance(sweep, dict) or not sweep:
        return {name: run}
    options = {} if run.get("options") is None else run["options"]
    if not isinstance(options, dict) or not all(isinstance(v, list) and v for v in sweep.values()):
        return {name: run}
    if both := [option for option in sweep if option in options]:
        raise UserError(f"runs.{name}: {both[0]} is in `sweep` and in `options`; remove it there")
    for option, given in sweep.items():
        if twice := [value for number, value in enumerate(given) if value in given[:number]]:
            raise UserError(f"runs.{name}: `sweep` has {option} {twice[0]!r} twice; remove one")
    return {
        "_".join(map(str, (name, *chosen))): {
            **{key: value for key, value in run.items() if key != "sweep"},
            "options": {**options, **dict(zip(sweep, chosen, strict=True))},
        }
        for chosen in product(*sweep.values())
    }


def with_used_files(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration in which every `use` is replaced by what its file says.

    Keys beside `use` go before those of the file, within sections too. A `file` as source replaces
    a dataset with all that belongs to it, and of another `file` all but the fields; another
    `dataset` (a copy in a folder, say) keeps its configuration, split and fields, but not the
    revision.
    """
    benchmarks = values.get("benchmarks")
    if not isinstance(benchmarks, dict):
        return dict(values)
    resolved = {name: _resolved(name, entry) for name, entry in benchmarks.items()}
    return {**values, "benchmarks": resolved}


def _resolved(name: object, entry: Any) -> Any:
    if not isinstance(entry, dict) or "use" not in entry:
        return entry
    file = entry["use"]
    if not isinstance(file, str) or not file:
        raise UserError(f"config: benchmarks.{name}.use must be the path of a file, not {file!r}")
    file = located(file)
    values = read_values(Path(file), f"benchmarks.{name}: file", "docs/benchmarks.md")
    if "use" in values:
        raise UserError(f"{file}: it cannot `use` another file; write the fields into it")
    try:
        BenchmarkConfig.model_validate(values)
    except ValidationError as error:
        # What is missing, or does not fit together yet, may stand beside `use`.
        wrong = [e for e in error.errors() if e["type"] not in ("missing", "value_error")]
        if wrong:
            raise UserError(sentence(wrong[0], file)) from None
    _locate(values, os.path.dirname(file))
    return _merged(values, {key: value for key, value in entry.items() if key != "use"})


def _locate(values: dict[str, Any], folder: str) -> None:
    """Make the paths in a benchmark's file, which are relative to it, relative to where we are."""
    source, shots = values.get("source") or {}, values.get("shots") or {}
    paths = ((source, "file"), (source, "dataset"), (shots, "file"), (values, "ids_file"))
    for section, key in paths:
        if path := section.get(key):
            beside = os.path.normpath(os.path.join(folder, located(path)))
            if key != "dataset" or path[0] in ".~$" or os.path.isdir(beside):  # else of the hub
                section[key] = beside


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        inner = merged.get(key)
        if isinstance(inner, dict) and isinstance(value, dict):
            if key == "source" and value.get("file") is not None and inner.get("file") is None:
                inner = {}
            elif key == "source" and "dataset" in value:
                inner = {name: inner[name] for name in inner if name not in ("file", "revision")}
            value = _merged(inner, value)
        merged[key] = value
    return merged


def _is_folder(kind: str, path: str, revision: str | None) -> bool:
    """Say whether a model or dataset is a folder, and not of the hub; refuse what is neither."""
    if Path(path).is_dir():
        if revision is not None:
            raise UserError(
                f"revision {revision!r} is for hub {kind}s, but {path!r} is a folder; remove it"
            )
        return True
    if path.startswith((".", "/", "~")) or path.count("/") != 1:
        raise UserError(f"{path!r} is not a folder; give a {kind} folder or a hub id org/name")
    return False


def _is_model_folder(path: str, revision: str | None) -> bool:
    if path.endswith(GGUF):
        check_path(path, revision)
        return False
    if not _is_folder("model", path, revision):
        return False
    if not Path(path, "config.json").is_file():
        raise UserError(f"{path!r} has no config.json; give a Hugging Face model folder")
    if not any(Path(path).glob("tokenizer*")):
        raise UserError(f"{path!r} has no tokenizer; put its tokenizer.json there")
    return True


def _check_model(model: ModelConfig) -> None:
    if model.adapter is not None:
        check_folder(model.adapter)
    if _is_model_folder(model.path, model.revision):
        served = model.server is not None
        check_pickled(model.path, allowed=model.allow_pickle or served)
        if not served:
            check_whole(model.path, None)


def _check_checkpoints(run: RunConfig) -> None:
    if run.method not in METHODS:
        return
    method = resolve(run.method, run.options)
    for option, model_type in method.checkpoints.items():
        entry = method.checkpoint(option)
        with at(f"options.{option}"):
            if _is_model_folder(entry.path, entry.revision):
                _check_type(entry.path, model_type)
                check_pickled(entry.path, allowed=entry.allow_pickle)
                check_whole(entry.path, None)


def _check_type(path: str, model_type: str) -> None:
    try:
        config = parse_json(Path(path, "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"the config.json of {path!r} cannot be read: {error}") from None
    found = config.get("model_type") if isinstance(config, dict) else None
    if found != model_type:
        raise UserError(
            f"{path!r} holds a model of type {found!r}, not {model_type!r}; name one of that type"
        )


def _check_benchmark(benchmark: BenchmarkConfig) -> None:
    source = benchmark.source
    shots = benchmark.shots.file if benchmark.shots else None
    if wrong := no_file("file", filter(None, (source.file, shots, benchmark.ids_file))):
        raise UserError(f"{wrong}; check its path")
    if source.dataset is None or _is_folder("dataset", source.dataset, source.revision):
        return
    if source.revision is not None and not re.fullmatch("[0-9a-f]{40}", source.revision):
        raise UserError(
            f"hub dataset {source.dataset!r} has revision {source.revision!r}, which is not a"
            f" commit; {PIN}"
        )


def check_published(config: Config) -> None:
    """Check that the rows of the paper's numbers which experiments show exist."""
    if config.published_numbers is None:
        return
    rows = list(read_published(Path(config.published_numbers)).cells)
    for name, experiment in config.experiments.items():
        for row in experiment.published.values():
            if row not in rows:
                raise UserError(f"experiments.{name}.published: {unknown('row', row, rows)}")
