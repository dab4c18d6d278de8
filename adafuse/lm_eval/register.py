"""Making `--model adafuse` known to the harness, and running its command line with it."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from adafuse.errors import UserError, install

TARGET = "adafuse.lm_eval.model:AdaFuseLM"


def register() -> None:
    """Add `adafuse` to the models of the harness, unless it has found the entry point itself."""
    if find_spec("lm_eval") is None:
        raise UserError(f"lm-evaluation-harness is missing; {install('lm-eval')}")
    import_module("lm_eval.models")  # which fills an empty registry only
    from lm_eval.api.registry import model_registry

    if "adafuse" not in model_registry:
        model_registry.register("adafuse", target=TARGET)


def run_harness(arguments: Sequence[str]) -> None:
    register()
    from lm_eval.__main__ import cli_evaluate

    sys.argv = ["lm_eval", *arguments]
    cli_evaluate()
