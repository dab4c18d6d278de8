"""What a configuration needs of the hub, downloaded once and pinned to commits.

The commits are recorded beside the results, and the workflow asks for exactly these from then on.
"""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

from adafuse.config.config import Config
from adafuse.config.runs import RunConfig
from adafuse.config.serve import BY_WORKFLOW
from adafuse.errors import UserError
from adafuse.methods import METHODS, resolve
from adafuse.metrics.registry import SCORERS
from adafuse.metrics.translation import require_model
from adafuse.models.spec import ModelEntry
from adafuse.storage.files import write_text
from adafuse.workflow.benchmarks import source_file
from adafuse.workflow.layout import ResultsLayout

Pin = tuple[str, str | None]
"""A hub model and the revision that the configuration asks for."""


def prefetch(config: Config, download: Callable[[ModelEntry], Path]) -> dict[Pin, str]:
    """Download all that a configuration needs of the hub, and record and return its commits.

    A model whose commit is recorded already stays at it until the record is deleted. `download`
    returns the folder of a model, which has the name of its commit.
    """
    commits = read_commits(config)
    recorded = {(path, commit) for (path, _), commit in commits.items()}
    for model in hub_models(config):
        commit = download(model).name
        if (model.path, model.revision) not in recorded:
            commits[model.path, model.revision] = commit
    tasks = config.benchmarks.items()
    translates = any(SCORERS[task.scorer].needs_spm for _, task in tasks)
    record = {
        "models": [
            {"path": path, "revision": revision, "commit": commit}
            for (path, revision), commit in commits.items()
        ],
        "datasets": [
            {
                "dataset": task.source.dataset,
                "revision": task.source.revision,
                "file": str(source_file(config, name)),  # fetched now if planning has not done so
            }
            for name, task in tasks
            if task.source.dataset is not None
        ],
        "spm_sha256": require_model(config.spm_sha256) if translates else None,
    }
    write_text(ResultsLayout(config.results).commits, json.dumps(record, indent=2) + "\n")
    return commits


def read_commits(config: Config) -> dict[Pin, str]:
    file = ResultsLayout(config.results).commits
    if not file.is_file():
        return {}
    try:
        models = json.loads(file.read_text(encoding="utf-8"))["models"]
        return {(model["path"], model["revision"]): str(model["commit"]) for model in models}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError(
            f"{str(file)!r} is not a record of commits; delete it and run `snakemake prefetch`"
        ) from None


def with_commits(config: Config) -> Config:
    """Return a configuration that asks for the recorded commits."""
    commits = read_commits(config)
    if not commits:
        return config
    models = {
        name: model.model_copy(update={"revision": commits.get(_pin(model), model.revision)})
        for name, model in config.models.items()
    }
    runs = dict(config.runs)
    for name, run in runs.items():
        pinned = {
            f"{option}_revision": commits[_pin(model)]
            for option, model in _checkpoints(run).items()
            if _pin(model) in commits
        }
        runs[name] = run.model_copy(update={"options": {**run.options, **pinned}})
    return config.model_copy(update={"models": models, "runs": runs})


def hub_models(config: Config) -> list[ModelEntry]:
    """Return the hub models of the runs and of their options.

    What one of several entries of a model may do, it may do; it is on a server if all are.
    """
    runs, cells = config.runs.values(), product(config.benchmarks, config.runs)
    named = [model for cell in cells for model in config.model_specs(*cell)]
    checkpoints = [model for run in runs for model in _checkpoints(run).values()]
    merged: dict[Pin, ModelEntry] = {}
    for model in [*named, *checkpoints]:
        if Path(model.path).exists():
            continue
        other = merged.get(_pin(model), model)
        merged[_pin(model)] = ModelEntry(
            path=model.path,
            revision=model.revision,
            trust_remote_code=model.trust_remote_code or other.trust_remote_code,
            allow_pickle=model.allow_pickle or other.allow_pickle,
            server=_standing(model) and _standing(other),
        )
    return [merged[pin] for pin in sorted(merged, key=str)]


def _standing(model: ModelEntry) -> str | None:
    """Return the server of a model, if it has its weights already."""
    return None if model.server == BY_WORKFLOW else model.server


def _checkpoints(run: RunConfig) -> dict[str, ModelEntry]:
    """Return the models that the options of a run name, by option."""
    if run.method not in METHODS:
        return {}
    method = resolve(run.method, run.options)
    return {name: method.checkpoint(name) for name in method.checkpoints}


def _pin(model: ModelEntry) -> Pin:
    return model.path, model.revision
