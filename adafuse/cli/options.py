"""Options of several commands, and what the shell suggests for their values.

Completion must be fast: it imports and reads nothing slow. On errors it suggests nothing.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from adafuse.errors import UserError
from adafuse.metrics.registry import SCORERS
from adafuse.models.spec import AUTO, DTYPES, QUANTIZATIONS, ModelSpec, model_specs
from adafuse.options import parse
from adafuse.plugins import load_file
from adafuse.storage.yaml_files import parse_yaml

if TYPE_CHECKING:
    from adafuse.benchmarks.rows import Fields
    from adafuse.config.config import Config


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
    return [(name, scorer.doc) for name, scorer in SCORERS.items() if name.startswith(incomplete)]


def method_options(ctx: typer.Context, incomplete: str) -> list[str]:
    """Suggest NAME= for the options of the method that the command names."""
    from adafuse.methods import METHODS

    method = METHODS.get(ctx.params.get("method") or "adafuse")
    names = method.Options.model_fields if method else ()
    return [f"{name}=" for name in names if name.startswith(incomplete)]


def fusion_rules(incomplete: str) -> list[str]:
    """Suggest fusion rules."""
    from adafuse.methods import METHODS

    names = METHODS["adafuse"].Options.model_json_schema()["properties"]["fusion"]["enum"]
    return [name for name in names if name.startswith(incomplete)]


def model_folders(incomplete: str) -> list[str]:
    """Suggest folders: those of models, and with a slash those that may hold some."""
    before, slash, name = incomplete.rpartition("/")
    try:
        paths = sorted(Path(before + slash or ".").expanduser().iterdir())
    except OSError:
        return []
    return [
        f"{before}{slash}{path.name}" + "/" * (not (path / "config.json").is_file())
        for path in paths
        if path.is_dir() and path.name.startswith(name) and (name or path.name[0] != ".")
    ]


def example_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Suggest examples of the trace that the command names."""
    from adafuse.storage.parquet import read_rows

    # An option that still lacks its value keeps the arguments before it from being read.
    trace = ctx.params.get("trace") or next(iter(ctx.args), None)
    try:
        ids = [str(row["id"]) for row in read_rows(Path(trace), ["id"])] if trace else []
    except UserError:
        return []
    return [name for name in ids if name.startswith(incomplete)]


NONE = "none"
PROMPTS, MODELS, DECODING = "Prompts and output", "Models", "Decoding"


def option(
    text: str,
    metavar: str = "",
    panel: str | None = None,
    *names: str,
    values: Sequence[str] = (),
    **more: Any,
) -> Any:
    """Return an option: its help, the name of its value, its panel, and values to suggest."""
    if values:
        more["autocompletion"] = lambda incomplete: [
            value for value in values if value.startswith(incomplete)
        ]
    return typer.Option(*names, help=text, metavar=metavar, rich_help_panel=panel, **more)


def folders(text: str) -> Any:
    """Return a repeatable option whose values are models."""
    return option(text, "MODEL", MODELS, autocompletion=model_folders)


Strings = list[str] | None
SomeModels = Annotated[Strings, folders("A model folder or hub ID; repeatable.")]
Device = Annotated[
    Strings,
    option(
        "auto, cpu or cuda:0; to spread a model over GPUs: cuda:0+cuda:1, balanced or sequential."
        " One value, or one per model.",
        "DEVICE",
        MODELS,
        values=("auto", "cpu", "cuda:0", "cuda:0+cuda:1", "balanced", "sequential"),
    ),
]
Dtype = Annotated[
    str, option(f"{', '.join(DTYPES[:-1])} or {DTYPES[-1]}.", "NAME", MODELS, values=DTYPES)
]
Quantization = Annotated[
    Strings,
    option(
        "int8, int4 or none; one, or one per model.", "NAME", MODELS, values=(*QUANTIZATIONS, NONE)
    ),
]


FieldNames = Annotated[
    Strings,
    option(
        "How the file names question, answer or id, such as answer=Gold; also answer_separator=|,"
        " if one text holds several answers; repeatable.",
        "NAME=FIELD",
    ),
]
TemplateVariables = Annotated[
    Strings,
    option(
        "Variables of chat templates, such as '{enable_thinking: false}', or none; one, or one per"
        " model.",
        "YAML",
        MODELS,
    ),
]


ThoughtMarks = Annotated[
    Strings,
    option(
        "What begins and ends thoughts, such as '{begin: <think>, end: </think>}', or none; one, or"
        " one per model. By default, what the chat template names.",
        "YAML",
        MODELS,
    ),
]
PluginFiles = Annotated[
    list[Path] | None,
    option("A Python file with methods, fusion rules or scorers; repeatable.", "FILE"),
]
ServerKey = Annotated[
    Strings,
    option(
        "Environment variable with the server's API key; one, or one per model.", "VARIABLE", MODELS
    ),
]


def read_models(
    model: Annotated[list[str], folders("A model folder or hub ID; repeat it to fuse models.")],
    adapter: Annotated[
        Strings, option("Folder of a LoRA adapter, or none; one per model.", "FOLDER", MODELS)
    ] = None,
    chat: Annotated[
        bool, option("Apply the chat template of each model that has one.", "", MODELS, "--chat")
    ] = False,
    chat_for: Annotated[
        Strings, folders("Apply the chat template of this model; repeatable.")
    ] = None,
    chat_date: Annotated[
        Strings, option("Today's date in chat templates; one, or one per model.", "DAY", MODELS)
    ] = None,
    chat_template_kwargs: TemplateVariables = None,
    thoughts: ThoughtMarks = None,
    device: Device = None,
    dtype: Dtype = "auto",
    quantization: Quantization = None,
    server: Annotated[
        Strings,
        option("URL of a server that has the model, or none; one per model.", "URL", MODELS),
    ] = None,
    server_model: Annotated[
        Strings, option("The server's name of the model, or none; one per model.", "NAME", MODELS)
    ] = None,
    server_key: ServerKey = None,
    revision: Annotated[
        Strings, option("Hub revision, or none; one per model.", "REV", MODELS)
    ] = None,
    trust_remote_code: Annotated[
        Strings, folders("Allow this model's own Python code to run; repeatable.")
    ] = None,
    allow_pickle: Annotated[
        Strings, folders("Allow pickled weights of this model; repeatable.")
    ] = None,
) -> list[ModelSpec]:
    """Return what these options say of each model."""
    lists = {
        "adapter": _or_none(adapter),
        "chat": _flags(model, chat_for, "--chat-for"),
        "chat_date": chat_date,
        "chat_template_kwargs": _in_yaml(chat_template_kwargs, "--chat-template-kwargs"),
        "thoughts": _in_yaml(thoughts, "--thoughts"),
        "device": device,
        "quantization": _or_none(quantization),
        "server": _or_none(server),
        "server_model": _or_none(server_model),
        "server_key": _or_none(server_key),
        "revisions": _or_none(revision),
        "trust_remote_code": _flags(model, trust_remote_code, "--trust-remote-code"),
        "allow_pickle": _flags(model, allow_pickle, "--allow-pickle"),
    }
    loading: Any = {name: values for name, values in lists.items() if values}
    if chat and chat_for:
        raise UserError("--chat applies to all models, --chat-for to some; give only one of them")
    if chat:
        loading["chat"] = AUTO
    return model_specs(model or [], dtype=dtype, **loading)


def _in_yaml(given: Sequence[str] | None, option: str) -> list[Any]:
    return [text and value_of(text, option) for text in _or_none(given)]


def _or_none(values: Sequence[str] | None) -> list[str | None]:
    return [None if value == NONE else value for value in values or ()]


def _flags(models: Sequence[str], named: Sequence[str] | None, option: str) -> list[bool]:
    for name in named or ():
        if name not in models:
            raise UserError(
                f"{option} names {name!r}, which is not a --model; write one as it is given there:"
                f" {', '.join(models)}"
            )
    return [model in (named or ()) for model in models or ()]


def with_models(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `read_models`, whose result is its parameter `models`.

    Where that has a default, no model need be given.
    """
    signature = inspect.signature(command, eval_str=True)
    model, *others = inspect.signature(read_models, eval_str=True).parameters.values()
    before = [each for each in signature.parameters.values() if each.name != "models"]
    if signature.parameters["models"].default is not inspect.Parameter.empty:
        model = model.replace(default=None, annotation=SomeModels)

    @wraps(command)
    def run(**given: Any) -> None:
        loading = {each.name: given.pop(each.name) for each in (model, *others)}
        command(models=read_models(**loading), **given)

    run.__signature__ = signature.replace(  # type: ignore[attr-defined]  # which typer reads
        parameters=[
            each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (model, *before, *others)
        ]
    )
    run.__annotations__ = {}
    return run


def with_plugins(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--plugin`, whose files are run first."""
    signature = inspect.signature(command, eval_str=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    plugin = inspect.Parameter("plugin", kind, default=None, annotation=PluginFiles)

    @wraps(command)
    def run(plugin: list[Path] | None = None, **given: Any) -> None:
        for file in plugin or ():
            load_file(str(file))
        command(**given)

    plain = [each.replace(kind=kind) for each in signature.parameters.values()]
    run.__signature__ = signature.replace(parameters=[*plain, plugin])  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run


def number_or_name(text: str) -> int | str:
    return int(text) if text.removeprefix("-").isdecimal() else text


MethodName = Annotated[
    str, option("See `adafuse methods`.", "NAME", DECODING, autocompletion=method_names)
]
MaxNewTokens = Annotated[
    int,
    option(
        "Maximum new tokens of any model; an ensemble's last span may go beyond.", "N", DECODING
    ),
]
_OR_AUTO: dict[str, Any] = {"values": ["auto"], "parser": number_or_name}
BatchSize = Annotated[
    Any, option("Examples at a time: a number, or auto.", "N", DECODING, **_OR_AUTO)
]
ThreadsOption = Annotated[
    Any,
    option("CPU threads: a number, or auto for the cores that are idle now.", "N", **_OR_AUTO),
]
ResultsFolder = Annotated[Path, typer.Argument(help="A results folder.", metavar="RESULTS")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.", metavar="")]


def results_config(results: Path | None, file: Path | None = None) -> "Config":
    """Read the configuration of a results folder, or another one for it, or with its own folder."""
    from adafuse.config.reading import read_config
    from adafuse.workflow.layout import ResultsLayout

    stored = ResultsLayout(folder := results or Path("results")).config
    if file is None and not stored.is_file():
        raise UserError(
            f"{str(stored)!r} does not exist; name a results folder of the workflow, or run"
            " snakemake"
        )
    config = read_config(file or stored)
    own = results is None and file is not None
    return config if own else config.model_copy(update={"results": str(folder)})


def given(**values: Any) -> dict[str, Any]:
    """Keep the values that were given: a method refuses options that it does not have."""
    return {name: value for name, value in values.items() if value is not None}


def with_options(named: Mapping[str, Any], given: Sequence[str]) -> dict[str, Any]:
    """Return `named` and the options that are `given` as NAME=VALUE, with a value in YAML."""
    options = dict(named)
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UserError(f"--option {text!r} is not of the form NAME=VALUE, such as words=2")
        if name in options:
            raise UserError(f"option {name!r} is given twice; give it once")
        options[name] = value_of(value, "--option", text)
    return options


def fields_of(given: Strings) -> "Fields":
    """Return the names of fields that are `given` as NAME=FIELD."""
    from adafuse.benchmarks.rows import Fields

    pairs = dict(text.partition("=")[::2] for text in given or ())
    if len(pairs) < len(given or ()):
        raise UserError(f"--field names one of {', '.join(pairs)} twice; name it once")
    return parse(Fields, pairs, "--field")


def value_of(value: str, option: str, text: str | None = None) -> Any:
    """Return a value that is given in YAML, as part of the `text` of an option."""
    shown = value if text is None else text
    try:
        return parse_yaml(value, f"{option} {shown!r}")
    except yaml.YAMLError as error:
        raise UserError(
            f"{option} {shown[:200]!r} has a value that is not valid YAML ({error}); quote it"
        ) from None
