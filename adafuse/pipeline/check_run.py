"""What no single field of a run's configuration can know."""

from collections.abc import Sequence

from adafuse.comparison.pairings import members_alone
from adafuse.errors import UserError, known
from adafuse.methods import METHODS, resolve
from adafuse.methods.weights import check_weights
from adafuse.pipeline.check_model import check_model
from adafuse.pipeline.config import Config, RunConfig
from adafuse.selection.registry import SELECTIONS, selection


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
    for option in method.checkpoints:
        check_model(f"options.{option}", options[option], options[f"{option}_revision"])
    if method.reads_answers:
        _check_alone(run, config)


def _check_selection(run: RunConfig, config: Config) -> None:
    chosen = selection(run.method, run.options)
    if len(run.models) < 2 or len(set(run.models)) < len(run.models):
        raise UserError(f"method {run.method} needs at least 2 different models")
    candidates = chosen.candidates(_check_alone(run, config))
    for candidate in candidates:
        if candidate not in config.runs:
            raise UserError(known("run", candidate, list(config.runs)))
        if config.runs[candidate].method in SELECTIONS:
            raise UserError(f"run {candidate!r} decodes nothing itself; name one that does")
    chosen.check(run.models, {each: config.runs[each].models for each in candidates})


def _check_alone(run: RunConfig, config: Config) -> Sequence[str]:
    runs = {name: (each.method, each.models) for name, each in config.runs.items()}
    for model in run.models:
        if not members_alone(runs, [model]):
            raise UserError(
                f"method {run.method} needs what each model writes on its own; add a run of method"
                f" single with the model {model}"
            )
    return members_alone(runs, run.models)
