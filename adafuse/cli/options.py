"""Options of several commands, and what the shell suggests for their values.

Suggesting imports and reads nothing that takes long, and what goes wrong suggests nothing.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from adafuse.errors import UserError
from adafuse.metrics.registry import BENCHMARKS
from adafuse.models.spec import DTYPES, QUANTIZATIONS, ModelSpec, model_specs

Suggest = Callable[[str], list[str]]


def one_of(*values: str) -> Suggest:
    """Return what suggests some of `values`."""

    def suggest(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return suggest


def method_names(incomplete: str) -> list[tuple[str, str]]:
    """Suggest decoding methods, with the first line of what they say of themselves."""
    from adafuse.methods import METHODS

    return [
        (name, inspect.cleandoc(method.__doc__ or "").split("\n")[0])
        for name, method in METHODS.items()
        if name.startswith(incomplete)
    ]


def scorer_names(incomplete: str) -> list[tuple[str, str]]:
    """Suggest scorers, with what they report."""
    from adafuse.metrics.registry import SCORERS

    return [(name, each.doc) for name, each in SCORERS.items() if name.startswith(incomplete)]


def method_options(ctx: typer.Context, incomplete: str) -> list[str]:
    """Suggest NAME= for the options of the method that the command names."""
    from adafuse.methods import METHODS

    method = METHODS.get(ctx.params.get("method") or "adafuse")
    names = method.Options.model_fields if method else ()
    return [f"{name}=" for name in names if name.startswith(incomplete)]


def model_folders(incomplete: str) -> list[str]:
    """Suggest folders: those of models, and with a slash those that may hold some."""
    before, slash, name = incomplete.rpartition("/")
    try:
        found = sorted(Path(before + slash or ".").expanduser().iterdir())
    except OSError:
        return []
    return [
        f"{before}{slash}{path.name}" + "/" * (not (path / "config.json").is_file())
        for path in found
        if path.is_dir() and path.name.startswith(name) and (name or path.name[0] != ".")
    ]


def example_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Suggest examples of the trace that the command names."""
    from adafuse.parquet import read_rows

    # An option that still lacks its value keeps the arguments before it from being read.
    trace = ctx.params.get("trace") or next(iter(ctx.args), None)
    try:
        rows = read_rows(Path(trace), ["id"]) if trace else []
    except UserError:
        return []
    return [str(row["id"]) for row in rows if str(row["id"]).startswith(incomplete)]


NONE = "none"
PROMPTS, MODELS, DECODING = "Prompts and output", "Models", "Decoding"
_DEVICES = ("auto", "cpu", "cuda:0", "cuda:0+cuda:1", "balanced", "sequential")


def option(text: str, metavar: str = "", panel: str | None = None, *names: str, **more: Any) -> Any:
    """Return an option by its help, the name of its value, and where help lists it."""
    return typer.Option(*names, help=text, metavar=metavar, rich_help_panel=panel, **more)


def each(text: str, metavar: str, *values: str, autocompletion: Any = None) -> Any:
    """Return an option of models that may be repeated."""
    suggest = autocompletion or (one_of(*values) if values else None)
    return option(text, metavar, MODELS, autocompletion=suggest)


SomeModels = Annotated[
    list[str] | None,
    each("A model folder or hub id; repeatable.", "MODEL", autocompletion=model_folders),
]
Device = Annotated[
    list[str] | None,
    each(
        "auto, cpu, cuda:0; or one model over several: cuda:0+cuda:1, balanced, sequential."
        " One, or one per model.",
        "DEVICE",
        *_DEVICES,
    ),
]
Dtype = Annotated[str, each(f"{', '.join(DTYPES[:-1])} or {DTYPES[-1]}.", "NAME", *DTYPES)]


def read_models(
    model: Annotated[
        list[str],
        each("A model folder or hub id; repeat it to fuse.", "MODEL", autocompletion=model_folders),
    ],
    chat: Annotated[
        bool, option("Use each model's own chat template.", "", MODELS, "--chat")
    ] = False,
    device: Device = None,
    dtype: Dtype = "auto",
    quantization: Annotated[
        list[str] | None,
        each("int8, int4 or none; one, or one per model.", "NAME", *QUANTIZATIONS, NONE),
    ] = None,
    revision: Annotated[list[str] | None, each("Hub revision, one per model.", "REV")] = None,
    trust_remote_code: Annotated[
        list[str] | None,
        each("A model whose own code may run; repeatable.", "MODEL", autocompletion=model_folders),
    ] = None,
    allow_pickle: Annotated[
        list[str] | None,
        each(
            "A model whose weights may be pickled; repeatable.",
            "MODEL",
            autocompletion=model_folders,
        ),
    ] = None,
) -> list[ModelSpec]:
    """Return what these options say of each model.

    Raises:
        UserError: a value that is not allowed, a list of another length, or no such model.
    """
    said = {
        "device": device,
        "quantization": [None if name == NONE else name for name in quantization or ()],
        "revisions": revision,
        "trust_remote_code": _named(model, trust_remote_code, "--trust-remote-code"),
        "allow_pickle": _named(model, allow_pickle, "--allow-pickle"),
    }
    loading: Any = {name: values for name, values in said.items() if values}
    return model_specs(model or [], chat=chat, dtype=dtype, **loading)


def _named(models: Sequence[str], named: Sequence[str] | None, option: str) -> list[bool]:
    for name in named or ():
        if name not in models:
            raise UserError(f"{option} names {name!r}, which is not a --model; name one of these")
    return [model in (named or ()) for model in models or ()]


def with_models(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `read_models`, whose result is its parameter `models`.

    Where that has a default, no model need be given.
    """
    own = inspect.signature(command, eval_str=True)
    model, *others = inspect.signature(read_models, eval_str=True).parameters.values()
    before = list(own.parameters.values())
    place = list(own.parameters).index("models")
    if before[place].default is not inspect.Parameter.empty:
        model = model.replace(default=None, annotation=SomeModels)
    options = [model, *before[:place], *others, *before[place + 1 :]]

    @wraps(command)
    def run(**given: Any) -> None:
        loading = {each.name: given.pop(each.name) for each in (model, *others)}
        command(models=read_models(**loading), **given)

    keyword = inspect.Parameter.KEYWORD_ONLY
    run.__signature__ = own.replace(  # type: ignore[attr-defined]  # which typer reads
        parameters=[each.replace(kind=keyword) for each in options]
    )
    run.__annotations__ = {}
    return run


MethodName = Annotated[
    str, option("See `adafuse methods`.", "NAME", DECODING, autocompletion=method_names)
]
MethodOption = Annotated[
    list[str] | None,
    option(
        "Any option of the method; repeatable.",
        "NAME=VALUE",
        DECODING,
        autocompletion=method_options,
    ),
]
MaxNewTokens = Annotated[int, option("The most tokens a model may generate.", "N", DECODING)]
BatchSize = Annotated[
    str,
    option("Examples at a time: a number, or auto.", "N", DECODING, autocompletion=one_of("auto")),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.", metavar="")]
Benchmark = Annotated[
    str,
    option(f"{', '.join(BENCHMARKS)}.", "NAME", autocompletion=one_of(*BENCHMARKS)),
]
Predictions = Annotated[
    Path, option('JSON lines {"id" or "question", "text"}, or a Parquet trace.', "FILE")
]
References = Annotated[Path, option('JSON lines {"question", "answer", "id"}.', "FILE")]
ScorerName = Annotated[
    str | None,
    option(
        "For a benchmark of another name: nq, squad, translation, ...",
        "NAME",
        None,
        "--scorer",
        autocompletion=scorer_names,
    ),
]


def given(**values: Any) -> dict[str, Any]:
    """Keep the values that were given: a method refuses options that it does not have."""
    return {name: value for name, value in values.items() if value is not None}


def with_options(named: Mapping[str, Any], given: Sequence[str]) -> dict[str, Any]:
    """Return `named` and the options that are `given` as NAME=VALUE.

    Raises:
        UserError: not NAME=VALUE, a value that is not valid YAML, or an option that is given twice.
    """
    options = dict(named)
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UserError(f"--option {text!r} is not of the form NAME=VALUE, such as words=2")
        if name in options:
            raise UserError(f"option {name!r} is given twice; give it once")
        try:
            options[name] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise UserError(
                f"--option {text!r} has a value that is not valid YAML; quote it"
            ) from None
    return options


def number_or_name(text: str) -> int | str:
    """Return a whole number as such, everything else as it is."""
    return int(text) if text.removeprefix("-").isdecimal() else text
