"""What `--model_args` may say: everything is checked here, before the first model is loaded."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field

from adafuse.decoding.fusion import check_weights
from adafuse.decoding.method import Method
from adafuse.errors import UserError, unknown
from adafuse.methods import METHODS, resolve
from adafuse.models.spec import AUTO, LOADING, Loading, model_specs
from adafuse.options import BatchSize, Located, PluginFile, Positive, StrictSection, Threads, parse
from adafuse.records.result import CHAT_DATE

OWNER = "--model adafuse"
NONE = "none"


def _entries(value: object) -> object:
    """Return "A+B" as ("A", "B"), and a single value as the only one."""
    if isinstance(value, str):
        return tuple(value.split("+"))
    if isinstance(value, Sequence):
        return tuple(value)
    return value if value is None else (value,)


def _texts(value: object) -> object:
    entries = value if isinstance(value, bool) else _entries(value)
    if not isinstance(entries, tuple):
        return entries
    if odd := [entry for entry in entries if not isinstance(entry, str | bool | None)]:
        raise ValueError(
            f"must be text (write '{odd[0]}' in quotes, or the harness reads a number)"
        )
    return tuple(None if entry in (NONE, "") else entry for entry in entries)


def _whole(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _plain(path: object) -> object:
    return str(path) if isinstance(path, Path) else path


Weight = Annotated[float, Field(strict=False)]
Texts = Annotated[Any, BeforeValidator(_texts)]


class Arguments(StrictSection):
    """Which models, and how they decode, but for the method's own options.

    `max_gen_toks` holds where a task says nothing; `trace` is the Parquet file for the rounds;
    `max_error_share` is the part of the requests of one kind that may fail before the run does.
    """

    plugins: Annotated[tuple[PluginFile, ...], BeforeValidator(_entries)] = ()
    models: Annotated[tuple[str, ...], BeforeValidator(_entries), Field(min_length=1)]
    weights: Annotated[tuple[Weight, ...] | None, BeforeValidator(_entries)] = None
    method: str = "adafuse"
    batch_size: Annotated[BatchSize, BeforeValidator(_whole)] = 1
    threads: Annotated[Threads, BeforeValidator(_whole)] = AUTO
    max_gen_toks: Positive = 256
    max_rounds: Positive | None = None
    engine: Literal["tree", "reference"] = "tree"
    trace: Annotated[Located | None, BeforeValidator(_plain)] = None
    max_error_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    adapter: Texts = None
    revisions: Texts = None
    device: Any = AUTO
    dtype: Any = AUTO
    quantization: Texts = None
    chat_date: Texts = CHAT_DATE
    chat_template_kwargs: Any = None
    thoughts: Any = None
    trust_remote_code: Texts = False
    allow_pickle: Texts = False
    server: Texts = None
    server_model: Texts = None
    server_key: Texts = None

    @property
    def loading(self) -> Loading:
        """How `Ensemble.from_pretrained` loads the models; the harness itself decides on chats."""
        return cast(Loading, {name: getattr(self, name) for name in LOADING if name != "chat"})


def read_arguments(given: Mapping[str, Any]) -> tuple[Arguments, Method[Any]]:
    """Check what `--model_args` and the harness's own flags say; return it and the method."""
    named = {name: given[name] for name in given if name in Arguments.model_fields}
    options = {name: given[name] for name in given if name not in named}
    if not named.get("models"):
        raise UserError(f"{OWNER} needs models; give --model_args models=A+B")
    if most := options.pop("max_batch_size", None):
        raise UserError(f"--max_batch_size {most} is not for {OWNER}; give --batch_size {most}")
    arguments = parse(Arguments, named, OWNER)
    model_specs(arguments.models, **arguments.loading)
    if arguments.method in METHODS:
        names = [*Arguments.model_fields, *METHODS[arguments.method].Options.model_fields]
        if unexpected := [name for name in options if name not in names]:
            raise UserError(f"{OWNER}: {unknown('argument', unexpected[0], names)}")
    method = resolve(arguments.method, options)
    method.check_models(len(arguments.models))
    check_weights(arguments.weights, len(arguments.models))
    return arguments, method
