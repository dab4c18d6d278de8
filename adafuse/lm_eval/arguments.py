"""What `--model_args` may say: everything is checked here, before the first model is loaded."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field

from adafuse.decoding.fusion import check_weights
from adafuse.decoding.method import Method
from adafuse.errors import UserError
from adafuse.methods import METHODS, resolve
from adafuse.models.spec import LOADING, Loading, ModelSpec, model_specs
from adafuse.options import BatchSize, MethodOptions, Positive, parse

OWNER = "--model adafuse"
NONE = "none"


def _entries(value: object) -> object:
    """Return "A+B" as ("A", "B"), and a single value as the only one."""
    if isinstance(value, str):
        return tuple(value.split("+"))
    if isinstance(value, Sequence):
        return tuple(value)
    return value if value is None else (value,)


def _numbers(value: object) -> object:
    entries = _entries(value)
    if not isinstance(entries, tuple):
        return entries
    try:
        return tuple(float(entry) for entry in entries)
    except (TypeError, ValueError):
        raise ValueError("must be numbers joined by +, such as 2+1") from None


def _setting(name: str, value: object) -> object:
    """Return what is said of how models are loaded; several are joined by +."""
    if value is None or isinstance(value, bool) or name in ("device", "dtype"):
        return value
    entries = _entries(value)
    assert isinstance(entries, tuple)
    if odd := [entry for entry in entries if not isinstance(entry, str | bool | None)]:
        raise UserError(
            f"{OWNER}: {name} must be text; write '{odd[0]}' in quotes, or the harness reads a"
            " number"
        )
    return tuple(None if entry in (NONE, "") else entry for entry in entries)


def _whole(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isdecimal() else value


Paths = Annotated[tuple[str, ...], BeforeValidator(_entries), Field(min_length=1)]
Numbers = Annotated[tuple[float, ...] | None, BeforeValidator(_numbers)]

ARGUMENTS = {n: ModelSpec.model_fields[f].default for n, f in LOADING.items() if n != "chat"}
"""How models are loaded without an argument; the harness itself decides on chats."""


class Arguments(MethodOptions):
    """Which models, and how they decode, but for the method's own options.

    `loading` is what `Ensemble.from_pretrained` is told about the models. `max_gen_toks` holds
    where a task says nothing; `trace` is the Parquet file for the rounds; `max_error_share` is the
    part of the requests of one kind that may fail before the run does.
    """

    models: Paths
    weights: Numbers = None
    loading: dict[str, Any]
    method: str = "adafuse"
    batch_size: Annotated[BatchSize, BeforeValidator(_whole)] = 1
    max_gen_toks: Positive = 256
    max_rounds: Positive | None = None
    engine: Literal["tree", "reference"] = "tree"
    trace: Annotated[Path | None, Field(strict=False)] = None
    max_error_share: Annotated[float, Field(ge=0, le=1)] = 0.1


def read_arguments(given: Mapping[str, Any]) -> tuple[Arguments, Method[Any]]:
    """Check what `--model_args` and the harness's own flags say; return it and the method.

    Raises:
        UserError: an unknown name, a value that is not allowed, or what does not fit together.
    """
    names = [name for name in Arguments.model_fields if name != "loading"]
    own = {name: given[name] for name in given if name in names}
    loading = {name: _setting(name, given[name]) for name in given if name in ARGUMENTS}
    options = {name: given[name] for name in given if name not in own | loading}
    if not own.get("models"):
        raise UserError(f"{OWNER} needs models; give --model_args models=A+B")
    if most := options.pop("max_batch_size", None):
        raise UserError(f"--max_batch_size {most} is not for {OWNER}; give --batch_size {most}")
    arguments = parse(Arguments, {**own, "loading": loading}, OWNER)
    model_specs(arguments.models, **cast(Loading, loading))
    _refuse_unknown(options, arguments.method, names)
    method = resolve(arguments.method, options)
    method.check_models(len(arguments.models))
    check_weights(arguments.weights, len(arguments.models))
    return arguments, method


def _refuse_unknown(options: Mapping[str, Any], method: str, names: Sequence[str]) -> None:
    if method not in METHODS:
        return  # which is told when it is resolved
    of_method = list(METHODS[method].Options.model_fields)
    for name in options:
        if name not in of_method:
            raise UserError(
                f"{OWNER} has no argument {name!r}; known are:"
                f" {', '.join([*names, *ARGUMENTS])}; and of method {method}:"
                f" {', '.join(of_method)}"
            )
