"""Everything of the hub that a configuration needs, downloaded once and pinned to commits.

The commits are recorded beside the results. From then on the workflow asks for exactly these, so
that nodes without a network find them in the cache, and a model that changes on the hub changes
nothing here.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from adafuse.config.config import Config
from adafuse.config.runs import ModelConfig, RunConfig
from adafuse.errors import UserError
from adafuse.files import write_text
from adafuse.methods import METHODS, resolve
from adafuse.metrics.translation import require_model
from adafuse.models.spec import ModelEntry
from adafuse.workflow.benchmarks import source_file

Pin = tuple[str, str | None]
"""A hub model and the revision that the configuration asks for."""


def record_file(results: str) -> Path:
    """Return where the commits are recorded."""
    return Path(results) / "prefetched.json"


def prefetch(config: Config, download: Callable[[ModelEntry], Path]) -> dict[Pin, str]:
    """Download all that a configuration needs of the hub and record what it was.

    A model whose commit is recorded already stays at it; the record is what to delete for new ones.

    Args:
        config: with its commits, if some are recorded.
        download: returns the folder of a model, named like its commit.

    Raises:
        UserError: something cannot be downloaded.
    """
    commits = read_commits(config.results)
    recorded = {(path, commit) for (path, _), commit in commits.items()}
    for model in hub_models(config):
        commit = download(model).name
        if (model.path, model.revision) not in recorded:
            commits[model.path, model.revision] = commit
    models = [{"path": pin[0], "revision": pin[1], "commit": commits[pin]} for pin in commits]
    record = {"models": models, "datasets": _datasets(config), "spm_sha256": _spm(config)}
    write_text(record_file(config.results), json.dumps(record, indent=2) + "\n")
    return commits


def _datasets(config: Config) -> list[dict[str, str | None]]:
    """Fetch what planning has not fetched yet, and return what there is."""
    found: list[dict[str, str | None]] = []
    for name, benchmark in config.benchmarks.items():
        if (dataset := benchmark.source.dataset) is not None:
            file = str(source_file(config, name))
            revision = benchmark.source.revision
            found.append({"dataset": dataset, "revision": revision, "file": file})
    return found


def _spm(config: Config) -> str | None:
    wanted = any(each.scorer == "translation" for each in config.benchmarks.values())
    return require_model(config.spm_sha256) if wanted else None


def read_commits(results: str) -> dict[Pin, str]:
    """Return the recorded commits.

    Raises:
        UserError: the record is none.
    """
    file = record_file(results)
    if not file.is_file():
        return {}
    try:
        models = json.loads(file.read_text(encoding="utf-8"))["models"]
        return {(each["path"], each["revision"]): str(each["commit"]) for each in models}
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f"{str(file)!r} is no record of commits; delete it and run `snakemake prefetch`"
        ) from None


def with_commits(config: Config) -> Config:
    """Return a configuration that asks for the recorded commits.

    Raises:
        UserError: the record is none.
    """
    commits = read_commits(config.results)
    if not commits:
        return config
    models = {name: _pinned_model(model, commits) for name, model in config.models.items()}
    runs = {name: _pinned_run(run, commits) for name, run in config.runs.items()}
    return config.model_copy(update={"models": models, "runs": runs})


def hub_models(config: Config) -> list[ModelEntry]:
    """Return the models that are no folders: those of the runs, and those that options name.

    What one of several entries of a model needs is needed.
    """
    merged: dict[Pin, ModelEntry] = {}
    for each in _named(config):
        known = merged.get((each.path, each.revision), each)
        merged[each.path, each.revision] = ModelEntry(
            path=each.path,
            revision=each.revision,
            trust_remote_code=each.trust_remote_code or known.trust_remote_code,
            allow_pickle=each.allow_pickle or known.allow_pickle,
        )
    return [merged[pin] for pin in sorted(merged, key=str)]


def _named(config: Config) -> Iterator[ModelEntry]:
    for run in config.runs.values():
        yield from (config.models[name] for name in run.models if _of_hub(config.models[name].path))
        for path, revision in _checkpoints(run).values():
            yield ModelEntry(path=path, revision=revision)


def _checkpoints(run: RunConfig) -> dict[str, Pin]:
    if run.method not in METHODS:
        return {}
    method = resolve(run.method, run.options)
    options: dict[str, Any] = method.options.model_dump()
    pins = {name: (options[name], options[f"{name}_revision"]) for name in method.checkpoints}
    return {name: pin for name, pin in pins.items() if _of_hub(pin[0])}


def _of_hub(path: str) -> bool:
    return not Path(path).is_dir()


def _pinned_model(model: ModelConfig, commits: Mapping[Pin, str]) -> ModelConfig:
    commit = commits.get((model.path, model.revision))
    return (
        model.model_copy(update={"revision": commit}) if commit and _of_hub(model.path) else model
    )


def _pinned_run(run: RunConfig, commits: Mapping[Pin, str]) -> RunConfig:
    found = {
        f"{name}_revision": commits[pin]
        for name, pin in _checkpoints(run).items()
        if pin in commits
    }
    return run.model_copy(update={"options": {**run.options, **found}}) if found else run
