"""What the results of the harness, and a trace, say about the ensemble behind them."""

from typing import Any

from adafuse.ensemble import Ensemble
from adafuse.harness.arguments import Arguments
from adafuse.methods.method import Method
from adafuse.models.language_model import LanguageModel
from adafuse.pipeline.provenance import versions


def settings(arguments: Arguments, method: Method[Any]) -> dict[str, Any]:
    """Return all arguments, and the method's options with their defaults, JSON-ready.

    They stand side by side, as in a trace of `adafuse generate`: no method has an option that is
    called like an argument.
    """
    return {**arguments.model_dump(mode="json"), **method.options.model_dump(mode="json")}


def describe(ensemble: Ensemble) -> dict[str, Any]:
    """Return the models as they were loaded, their weights, and the versions behind them."""
    return {
        "loaded": [_described(model) for model in ensemble.models],
        "weights": list(ensemble.weights),
        "versions": versions(),
    }


def _described(model: LanguageModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "commit": getattr(model.network.config, "_commit_hash", None),
        "dtype": str(model.network.dtype),
        "device": str(model.device),
        "parameters": model.network.num_parameters(),
    }
