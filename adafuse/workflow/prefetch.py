"""Everything of the hub that a configuration needs, downloaded once and pinned to commits.

The commits are recorded beside the results. From then on the workflow asks for exactly these, so
that nodes without a network find them in the cache, and a model that changes on the hub changes
nothing here.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from adafuse.config.config import Config
from adafuse.config.runs import RunConfig
from adafuse.errors import UserError
from adafuse.files import write_text
from adafuse.methods import METHODS, resolve
from adafuse.metrics.translation import require_model
from adafuse.models.spec import ModelEntry
from adafuse.workflow.benchmarks import source_file
from adafuse.workflow.layout import ResultsLayout

Pin = tuple[str, str | None]
"""A hub model and the revision that the configuration asks for."""


def prefetch(config: Config, download: Callable[[ModelEntry], Path]) -> dict[Pin, str]:
    """Download all that a configuration needs of the hub and record what it was.

    A model whose commit is recorded already stays at it; the record is what to delete for new ones.

    Args:
        config: with its commits, if some are recorded.
        download: returns the folder of a model, named like its commit.

    Raises:
        UserError: something cannot be downloaded.
    """
    commits = read_commits(config)
    recorded = {(path, commit) for (path, _), commit in commits.items()}
    for model in hub_models(config):
        commit = download(model).name
        if (model.path, model.revision) not in recorded:
            commits[model.path, model.revision] = commit
    datasets = [
        {
            "dataset": benchmark.source.dataset,
            "revision": benchmark.source.revision,
            "file": str(source_file(config, name)),  # fetched now where planning has not done so
        }
        for name, benchmark in config.benchmarks.items()
        if benchmark.source.dataset is not None
    ]
    translates = any(each.scorer == "translation" for each in config.benchmarks.values())
    record = {
        "models": [
            {"path": path, "revision": revision, "commit": commit}
            for (path, revision), commit in commits.items()
        ],
        "datasets": datasets,
        "spm_sha256": require_model(config.spm_sha256) if translates else None,
    }
    write_text(ResultsLayout(config.results).commits, json.dumps(record, indent=2) + "\n")
    return commits


def read_commits(config: Config) -> dict[Pin, str]:
    """Return the recorded commits.

    Raises:
        UserError: the record cannot be read.
    """
    file = ResultsLayout(config.results).commits
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
        UserError: the record cannot be read.
    """
    commits = read_commits(config)
    if not commits:
        return config
    models = dict(config.models)
    for name, model in models.items():
        pin = (model.path, model.revision)
        if pin in commits and _of_hub(model.path):
            models[name] = model.model_copy(update={"revision": commits[pin]})
    runs = dict(config.runs)
    for name, run in runs.items():
        found = {f"{option}_revision": commits.get(pin) for option, pin in _checkpoints(run)}
        options = {**run.options, **{key: commit for key, commit in found.items() if commit}}
        runs[name] = run.model_copy(update={"options": options})
    return config.model_copy(update={"models": models, "runs": runs})


def hub_models(config: Config) -> list[ModelEntry]:
    """Return the models that are no folders: those of the runs, and those that options name.

    What one of several entries of a model needs is needed.
    """
    merged: dict[Pin, ModelEntry] = {}
    for model in _named_models(config):
        other = merged.get((model.path, model.revision), model)
        merged[model.path, model.revision] = ModelEntry(
            path=model.path,
            revision=model.revision,
            trust_remote_code=model.trust_remote_code or other.trust_remote_code,
            allow_pickle=model.allow_pickle or other.allow_pickle,
        )
    return [merged[pin] for pin in sorted(merged, key=str)]


def _named_models(config: Config) -> Iterator[ModelEntry]:
    for run in config.runs.values():
        yield from (config.models[name] for name in run.models if _of_hub(config.models[name].path))
        for _, (path, revision) in _checkpoints(run):
            yield ModelEntry(path=path, revision=revision)


def _checkpoints(run: RunConfig) -> list[tuple[str, Pin]]:
    """Return the hub models that the options of a run name, with the names of the options."""
    if run.method not in METHODS:
        return []
    method = resolve(run.method, run.options)
    options: dict[str, Any] = method.options.model_dump()
    pins = [(name, (options[name], options[f"{name}_revision"])) for name in method.checkpoints]
    return [(name, pin) for name, pin in pins if _of_hub(pin[0])]


def _of_hub(path: str) -> bool:
    return not Path(path).is_dir()
