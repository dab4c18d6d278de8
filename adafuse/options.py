"""Settings that users write: what each means, and what is wrong with one, in a sentence."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import zip_longest
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from adafuse.errors import UserError, unknown
from adafuse.plugins import load_file
from adafuse.storage.files import located
from adafuse.storage.yaml_files import Written

CHANGE_WHEN = "change_when"
"""Keyword of the JSON schema that says when a user changes a setting."""

WHEN = "; change it when "


def _describe(schema: dict[str, Any], section: type[BaseModel]) -> None:
    """Add what the docstrings of fields say; pydantic would read them whenever a class is made."""
    documented = {k: v for each in reversed(section.__mro__) for k, v in _docstrings(each).items()}
    for name, field in schema["properties"].items():
        text = field.get("description") or documented.get(name, "")
        meaning, _, when = " ".join(text.split()).partition(WHEN)
        texts = {"description": meaning, CHANGE_WHEN: when}
        field.update({keyword: text for keyword, text in texts.items() if text})


@cache
def _docstrings(section: type) -> dict[str, str]:
    """Return the docstring of every field that a class declares; empty if there is none."""
    try:
        source = inspect.getsource(section) if issubclass(section, BaseModel) else ""
        nodes = ast.parse(textwrap.dedent(source)).body
    except (OSError, TypeError, SyntaxError):  # of a class that no file holds
        return {}
    found: dict[str, str] = {}
    for node in nodes:
        body = node.body if isinstance(node, ast.ClassDef) else []
        for field, after in zip_longest(body, body[1:]):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                docstring = after.value if isinstance(after, ast.Expr) else None
                text = docstring.value if isinstance(docstring, ast.Constant) else None
                found[field.target.id] = text if isinstance(text, str) else ""
    return found


Text = Annotated[str, Field(min_length=1, strict=True)]
Number = Annotated[int, Field(ge=0, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Positive = Annotated[int, Field(ge=1, strict=True)]
IS_MODEL_NUMBER = "number of a model"
ModelNumber = Annotated[int, Field(ge=0), IS_MODEL_NUMBER]
"""Counted from 0; `Method.check_models` refuses one that the ensemble does not have."""
WordTokens = Annotated[
    Positive, Field(description="maximum tokens of a word, for text without spaces")
]


def _as_text(identifier: object) -> object:
    whole = isinstance(identifier, int) and not isinstance(identifier, bool)
    return str(identifier) if whole else identifier


Identifier = Annotated[Text, BeforeValidator(_as_text, json_schema_input_type=str | int)]
"""The id of a row, or the name of something; whole numbers become text."""
NamesT = TypeVar("NamesT", bound=Sequence[str])


def different(names: NamesT) -> NamesT:
    """Return names none of which is listed twice.

    Raises:
        ValueError: one is.
    """
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{repeated[0]!r} is listed twice; remove one")
    return names


def _positive_or(word: str) -> BeforeValidator:
    def checked(value: object) -> object:
        if value == word or (isinstance(value, int) and value is not True and value > 0):
            return value
        raise ValueError(f'must be a whole number above 0, or "{word}"')

    return BeforeValidator(checked)


BatchSize = Annotated[Positive | Literal["auto"], _positive_or("auto")]
"""Examples at a time: a number, or as many as fit into memory."""
Threads = BatchSize
"""Threads of a CPU: a number, or as many as are free."""
MaxWords = Annotated[Positive | Literal["adaptive"], _positive_or("adaptive")]
"""Words of a proposal: at most a number, or up to the end of the sentence."""

OTHER_LENGTHS = ("max_gen_toks", "max_tokens", "max_completion_tokens")
"""What other libraries call `max_new_tokens`."""
SAMPLING: dict[str, tuple[object, ...]] = {
    "do_sample": (False,), "temperature": (0,), "top_p": (1,), "top_k": (1, 0, -1), "min_p": (0,),
    "typical_p": (1,), "num_beams": (1,), "use_beam_search": (False,), "n": (1,), "best_of": (1,),
    "num_return_sequences": (1,), "presence_penalty": (0,), "frequency_penalty": (0,),
    "repetition_penalty": (1,), "length_penalty": (1,), "no_repeat_ngram_size": (0,),
}  # fmt: skip
"""Settings of other libraries, with their values that change nothing about greedy decoding."""


ValueT = TypeVar("ValueT")


def listed(given: Iterable[ValueT], name: str, entries: str) -> list[ValueT]:
    """Return the values of a list, a tuple, an array or an iterator, in their order.

    Raises:
        UserError: a single value, or a set or mapping, whose order means nothing.
    """
    one = not isinstance(given, Iterable) or isinstance(given, str | bytes)
    if one or isinstance(given, Mapping | set | frozenset):
        raise UserError(f"{name} is {given!r:.60}; give a list {entries}")
    return list(given)


class Section(BaseModel):
    """Base of all groups of settings: frozen, unknown keys refused.

    The docstring of a field says what it means, and after "; change it when" when to change it, in
    Markdown without a capital at the beginning and a full stop at the end.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        json_schema_extra=_describe,
    )
    kind_of_key: ClassVar[str] = "key"
    renamed: ClassVar[Mapping[str, str]] = {}
    """What keys were called before, with their names now."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, values: object) -> object:
        """Refuse a misspelt key before pydantic misses the right one."""
        for key in values if isinstance(values, dict) else ():
            if key not in cls.model_fields:
                message = unknown(cls.kind_of_key, key, list(cls.model_fields))
                if key in cls.renamed:
                    message = f"{cls.kind_of_key} {key!r} is now {cls.renamed[key]!r}; rename it"
                raise PydanticCustomError("unknown_key", "{message}", {"message": message})
        return values


class StrictSection(Section):
    """Base of settings of which no value is converted."""

    model_config = ConfigDict(strict=True)
    kind_of_key = "option"


class MethodOptions(StrictSection):
    """Base of the options of a method; a gate can be fitted if it replaces some of them."""

    replaced_by_gate: ClassVar[frozenset[str]] = frozenset()

    @property
    def functions(self) -> tuple[object, ...]:
        """What the options name that another package may bring."""
        return ()


def _located(path: str) -> str:
    with refusing():
        return located(path)


def _plugin(path: str) -> str:
    with refusing():
        load_file(path)
    return path


Located = Annotated[Text, AfterValidator(_located)]
"""A path, with `~` and `$VARIABLES`, or the name of what is on the hub."""
PluginFile = Annotated[Located, AfterValidator(_plugin)]
"""A Python file, which is run: what it registers is known to all that is checked later."""
ModelT = TypeVar("ModelT", bound=BaseModel)


def parse(section: type[ModelT], values: Mapping[str, Any], owner: str = "") -> ModelT:
    """Build a section from plain values; a `UserError` says what is wrong in `owner`."""
    try:
        return section.model_validate(dict(values))
    except ValidationError as error:
        raise UserError(sentence(error.errors()[0], owner)) from None


@contextmanager
def refusing() -> Iterator[None]:
    """Turn a user's mistake into an error of the validator that finds it, which gets its place."""
    try:
        yield
    except UserError as error:
        raise ValueError(str(error)) from None


def sentence(error: ErrorDetails, owner: str = "") -> str:
    """Say what is wrong with the values of a section, where, and what would be right."""
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    message = message.replace("should", "must").replace("tuple", "list")
    message = re.sub(r" or instance of \w+$", "", message)
    message = re.sub(r"^\w+ (must have at \w+ \d+ \w+)( after .*)?$", r"\1", message)
    location = [str(part) for part in error["loc"] if part != "constrained-str"]  # of a union
    if error["type"] == "missing":
        section = ".".join(filter(None, [owner, *location[:-1]])) or "config"
        return f"{section} has no {location[-1]!r}; add it"
    if error["type"] in ("value_error", "unknown_key") and not message.startswith("must"):
        if location[-1:] == ["[key]"]:  # of a mapping, whose message names it
            location = location[:-2]
        return f"{': '.join(filter(None, [owner, '.'.join(location)])) or 'config'}: {message}"
    message = f"{message}, not {repr(error['input'])[:200]}{_advice(error)}"
    return f"{owner or 'config'}: {'.'.join(location)} {message}"


def _advice(error: ErrorDetails) -> str:
    """Say where a value stands in its file, and how to write what was expected."""
    value = error["input"]
    place = f" ({value.place})" if isinstance(value, Written) else ""
    if error["type"] in ("list_type", "tuple_type") and value is not None:
        return f"{place}; put it in brackets"
    if error["type"] in ("dict_type", "model_type"):
        return f"{place}; write names with values, as in {{name: value}}"
    if isinstance(value, Written) and isinstance(value, str):
        return place + _IS_TEXT * bool(re.fullmatch(_LOOKS_LIKE_MORE, value, re.IGNORECASE))
    scalar = value is None or isinstance(value, int | float)
    return f"{place}; put it in quotes" if scalar and error["type"] == "string_type" else place


_IS_TEXT = ", which is a text; write true or false, and numbers like 12, 0.5 or 1e-3"
_LOOKS_LIKE_MORE = r"y|n|yes|no|on|off|[-+.]?\d.*"
