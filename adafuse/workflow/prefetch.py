"""What a configuration needs of the hub, downloaded once and pinned to commits.

The commits are recorded beside the results, and the workflow asks for exactly these from then on.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from time import monotonic
from typing import Any

from adafuse.config.config import Config
from adafuse.config.runs import RunConfig
from adafuse.config.serve import BY_WORKFLOW
from adafuse.errors import UserError
from adafuse.methods import METHODS, resolve
from adafuse.metrics.registry import SCORERS
from adafuse.metrics.translation import model_file, require_model
from adafuse.models.files import is_here
from adafuse.models.hub import hub_refusal
from adafuse.models.spec import ModelEntry
from adafuse.storage.files import write_text
from adafuse.workflow.benchmarks import is_fetched, source_file, unpinned_source
from adafuse.workflow.digest import SPBLEU
from adafuse.workflow.layout import ResultsLayout

logger = logging.getLogger(__name__)

Pin = tuple[str, str | None]
"""A hub model and the revision that the configuration asks for."""


@dataclass(frozen=True, slots=True)
class Need:
    """A model, the rows of a benchmark, or the SentencePiece model that a configuration needs.

    `obstacle` says why it cannot be fetched, as far as that is known without asking the hub.
    """

    subject: ModelEntry | str
    name: str
    here: bool
    obstacle: str | None = None

    def refusal(self, config: Config) -> str | None:
        """Return why it cannot be fetched; the hub is asked whether this machine's token may."""
        if self.here or self.obstacle or self.subject == SPBLEU:
            return self.obstacle
        if isinstance(self.subject, ModelEntry):
            return hub_refusal("model", self.subject.source[0])
        source = config.benchmarks[self.subject].source
        on_hub = source.dataset is not None and not Path(source.dataset).is_dir()
        return hub_refusal("dataset", str(source.dataset)) if on_hub else None


def needs_of(config: Config) -> list[Need]:
    """Return what a configuration needs that is not in files of its own."""
    needs = [
        Need(
            model,
            f"model {model.path} ({model.revision or 'no revision'})",
            is_here(model.path, model.revision, served=model.server is not None),
        )
        for model in hub_models(config)
    ]
    for name, task in config.benchmarks.items():
        if task.source.dataset is not None:
            here = is_fetched(config, name)
            obstacle = None if here else unpinned_source(config, name)
            needs.append(Need(name, f"data set of {name} ({task.source.dataset})", here, obstacle))
    if any(SCORERS[task.scorer].needs_spm for task in config.benchmarks.values()):
        needs.append(Need(SPBLEU, "SentencePiece model of spBLEU", model_file().is_file()))
    return needs


def prefetch(config: Config, download: Callable[[ModelEntry], Path]) -> dict[Pin, str]:
    """Download all that a configuration needs of the hub, and record and return its commits.

    What cannot be fetched is named first, and all else is fetched. A model whose commit is recorded
    already stays at it until the record is deleted. `download` returns the folder of a model, which
    has the name of its commit.

    Raises:
        UserError: something could not be fetched; all else is fetched and recorded.
    """
    needs = needs_of(config)
    failed = {need.name: why for need in needs if (why := need.refusal(config))}
    _list(needs, failed)
    commits = read_commits(config)
    recorded = {(path, commit) for (path, _), commit in commits.items()}
    record: dict[str, Any] = {"datasets": [], "spm_sha256": None}
    wanted = [need for need in needs if need.name not in failed]
    for number, need in enumerate(wanted, start=1):
        begun, subject = monotonic(), need.subject
        logger.info("%d of %d: %s", number, len(wanted), need.name)
        try:
            if isinstance(subject, ModelEntry):
                commit = download(subject).name
                if (subject.path, subject.revision) not in recorded:
                    commits[_pin(subject)] = commit
            elif subject == SPBLEU:
                record["spm_sha256"] = require_model(config.spm_sha256)
            else:
                record["datasets"].append(_fetched(config, subject))
        except UserError as error:
            failed[need.name] = str(error)
            logger.error("%s", error)
        else:
            logger.info("  there after %.0f s", monotonic() - begun)
    models = [
        {"path": path, "revision": revision, "commit": commit}
        for (path, revision), commit in commits.items()
    ]
    if not failed or len(failed) < len(needs):
        file = ResultsLayout(config.results).commits
        write_text(file, json.dumps({"models": models, **record}, indent=2) + "\n")
    if failed:
        counts = f"{len(failed)} of {len(needs)} could not be fetched"
        raise UserError(f"{counts}, all else is there: {'; '.join(failed.values())}")
    return commits


def _list(needs: Sequence[Need], failed: Mapping[str, str]) -> None:
    """Say what cannot be fetched, then what is missing, then what is here."""
    for reason in failed.values():
        logger.error("cannot be fetched: %s", reason)
    missing = [need for need in needs if not need.here and need.name not in failed]
    for need in sorted(missing, key=lambda need: "no revision" not in need.name):
        logger.info("missing: %s", need.name)
    for need in needs:
        if need.here:
            logger.info("here: %s", need.name)


def _fetched(config: Config, benchmark: str) -> dict[str, str | None]:
    source = config.benchmarks[benchmark].source
    file = str(source_file(config, benchmark))
    return {"dataset": source.dataset, "revision": source.revision, "file": file}


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
    """Return a configuration that asks for the recorded commits of what is not in a folder here."""
    commits = {pin: c for pin, c in read_commits(config).items() if not Path(pin[0]).exists()}
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
            for option, model in checkpoints(run).items()
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
    own = [model for run in runs for model in checkpoints(run).values()]
    merged: dict[Pin, ModelEntry] = {}
    for model in [*named, *own]:
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


def checkpoints(run: RunConfig) -> dict[str, ModelEntry]:
    """Return the models that the options of a run name, by option."""
    if run.method not in METHODS:
        return {}
    method = resolve(run.method, run.options)
    return {name: method.checkpoint(name) for name in method.checkpoints}


def _pin(model: ModelEntry) -> Pin:
    return model.path, model.revision
