"""What each model of a run writes on its own: the runs that other runs start from or choose by."""

from adafuse.errors import UserError
from adafuse.pipeline.config import Config, RunConfig


def runs_alone(config: Config, run: RunConfig) -> list[str]:
    """Return the run of method `single` of each model, with as many rounds as `run` has.

    Weights and options say nothing of a single model's text.

    Raises:
        UserError: a model has none, or several, so that it is open which one is meant.
    """
    return [_run_alone(config, run, model) for model in run.models]


def _run_alone(config: Config, run: RunConfig, model: str) -> str:
    found = [
        name
        for name, each in config.runs.items()
        if (each.method, each.models) == ("single", (model,)) and each.max_rounds == run.max_rounds
    ]
    rounds = "" if run.max_rounds is None else f" and max_rounds {run.max_rounds}"
    if not found:
        raise UserError(
            f"method {run.method} needs what each model writes on its own; add a run of method"
            f" single with the model {model}{rounds}"
        )
    if len(found) > 1:
        raise UserError(
            f"method {run.method} needs one run of method single with the model {model}{rounds},"
            f" but {' and '.join(map(repr, found))} are such runs; leave one of them"
        )
    return found[0]
