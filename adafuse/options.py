"""Settings that users write: what each means, and what is wrong with one, in a sentence."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from adafuse.errors import UserError, known

CHANGE_WHEN = "change_when"
"""Keyword of the JSON schema that says when a user changes a setting."""


def doc(meaning: str, when: str = "") -> Any:
    """Return the annotation of a field: what it means, and when to change it.

    Both are Markdown of one line, without a capital at the beginning and a full stop at the end.
    """
    return Field(description=meaning, json_schema_extra={CHANGE_WHEN: when} if when else None)


Text = Annotated[str, Field(min_length=1, strict=True)]
Number = Annotated[int, Field(ge=0, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Positive = Annotated[int, Field(ge=1, strict=True)]
IS_MODEL_NUMBER = "number of a model"
ModelNumber = Annotated[int, Field(ge=0), IS_MODEL_NUMBER]
"""Counted from 0; `Method.check_models` refuses one that the ensemble does not have."""
WordTokens = Annotated[Positive, doc("the most tokens of a word, for text without spaces")]


def _batch_size(value: object) -> object:
    if value == "auto" or (isinstance(value, int) and value is not True and value > 0):
        return value
    raise ValueError('must be a whole number above 0, or "auto"')


BatchSize = Annotated[Positive | Literal["auto"], BeforeValidator(_batch_size)]
"""Examples at a time: a number, or as many as fit into memory."""


class Section(BaseModel):
    """Base of all groups of settings: frozen, unknown keys refused.

    `replaced` are further keys that users may write, which are gone before validation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    replaced: ClassVar[tuple[str, ...]] = ()


class MethodOptions(Section):
    """Base of all options of methods; no value is converted."""

    model_config = ConfigDict(strict=True)


SectionT = TypeVar("SectionT", bound=Section)


def parse(section: type[SectionT], values: Mapping[str, Any], owner: str = "") -> SectionT:
    """Build a section from plain values; `owner` names it in errors.

    Raises:
        UserError: an unknown key or a value that is not allowed, named with what is.
    """
    try:
        return section.model_validate(dict(values))
    except ValidationError as error:
        raise UserError(sentence(error.errors()[0], section, owner)) from None


@contextmanager
def refusing() -> Iterator[None]:
    """Turn a user's mistake into an error of the validator that finds it, which gets its place."""
    try:
        yield
    except UserError as error:
        raise ValueError(str(error)) from None


def sentence(error: ErrorDetails, section: type[Section], owner: str = "") -> str:
    """Say what is wrong with the values of a section, where, and what would be right."""
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    message = message.replace("should", "must")
    own = error["type"] == "value_error" and not message.startswith("must")
    location = [str(part) for part in error["loc"]]
    if own and location[-1:] == ["[key]"]:  # of a mapping, whose message names it
        location = location[:-2]
    *above, last = location or [""]
    outer = ".".join(filter(None, [owner, *above])) or "config"
    if error["type"] == "extra_forbidden":
        kind = "option" if issubclass(section, MethodOptions) else "key"
        return f"{outer}: {known(kind, last, _keys(section, above))}"
    if error["type"] == "missing":
        return f"{outer} has no {last!r}; add it"
    if own:
        return f"{': '.join(filter(None, [owner, '.'.join(location)])) or 'config'}: {message}"
    return f"{owner or 'config'}: {'.'.join(location)} {message}, not {error['input']!r}"


def _keys(section: type[Section], path: Sequence[str]) -> list[str]:
    """Return the keys of the section that a path leads to, through mappings and lists."""
    keys = iter(path)
    for key in keys:
        kind = section.model_fields[key].annotation
        if get_origin(kind) in (dict, tuple):
            next(keys)
        section = next(each for each in (kind, *get_args(kind)) if _is_section(each))
    return [*section.model_fields, *section.replaced]


def _is_section(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)
