"""Options of `adafuse generate` that say how models are loaded, as `Ensemble` takes them."""

from collections.abc import Sequence
from typing import Annotated

import typer

from adafuse.errors import UserError

NONE = "none"

Device = Annotated[
    list[str] | None,
    typer.Option(
        help="auto, cpu, cuda:0; or one model over several: cuda:0+cuda:1, balanced, sequential."
        " One, or one per model."
    ),
]
Quantization = Annotated[
    list[str] | None, typer.Option(help="int8, int4 or none; one, or one per model.")
]
Trusted = Annotated[
    list[str] | None, typer.Option(help="A model whose own code may run; repeatable.")
]
Pickled = Annotated[
    list[str] | None, typer.Option(help="A model whose weights may be pickled; repeatable.")
]


def one_or_each(values: Sequence[str] | None) -> str | list[str | None] | None:
    """Return the one value of all models, or a list with one each; "none" leaves a model out."""
    named = [None if value == NONE else value for value in values or []]
    return named if len(named) > 1 else next(iter(named), None)


def flags(models: Sequence[str], named: Sequence[str] | None, option: str) -> list[bool]:
    """Return for each model whether an option names it.

    Raises:
        UserError: it names something else.
    """
    for name in named or ():
        if name not in models:
            raise UserError(f"{option} names {name!r}, which is no --model; name one of these")
    return [model in (named or ()) for model in models]
