"""`adafuse lm-eval`: lm-evaluation-harness, to which `--model adafuse` is known."""

import typer

from adafuse.harness.register import run_harness

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Everything, `--help` included, is for the harness."""


def lm_eval(context: typer.Context) -> None:
    """Run lm-evaluation-harness; all arguments are those of `lm_eval` (docs/lm-eval.md).

    Example: adafuse lm-eval --model adafuse --model_args models=A+B,tau=0.7 --tasks gsm8k
    """
    run_harness(context.args)
