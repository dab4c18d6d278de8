"""What no single field of a run's configuration can know."""

from adafuse.errors import UserError, known
from adafuse.methods import METHODS, resolve
from adafuse.methods.weights import check_weights
from adafuse.pipeline.alone import runs_alone
from adafuse.pipeline.check_model import check_checkpoint
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
    for option, kind in method.checkpoints.items():
        revision = options[f"{option}_revision"]
        check_checkpoint(f"options.{option}", options[option], revision, kind)
    if run.weights is not None and not method.uses_models:
        raise UserError(
            f"weights {list(run.weights)} change nothing in method {run.method}, which does not"
            " weigh its models; remove them"
        )
    if method.reads_answers:
        runs_alone(config, run)


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
    candidates = chosen.candidates(runs_alone(config, run))
    for candidate in candidates:
        if candidate not in config.runs:
            raise UserError(known("run", candidate, list(config.runs)))
        if config.runs[candidate].method in SELECTIONS:
            raise UserError(f"run {candidate!r} decodes nothing itself; name one that does")
    chosen.check(run.models, {each: config.runs[each].models for each in candidates})
