"""What a setting means, told where it is declared, for the JSON schema and docs/."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from adafuse.errors import UserError, meant

CHANGE_WHEN = "change_when"
"""Keyword of the JSON schema that says when a user changes a setting."""


def told(meaning: str, when: str = "") -> Any:
    """Return the annotation of a field: what it means, and when to change it.

    Both are Markdown of one line, without a capital at the beginning and a full stop at the end.
    """
    return Field(description=meaning, json_schema_extra={CHANGE_WHEN: when} if when else None)


Positive = Annotated[int, Field(ge=1)]
IS_MODEL_NUMBER = "number of a model"
ModelNumber = Annotated[int, Field(ge=0), IS_MODEL_NUMBER]
"""Counted from 0; `Method.check_models` refuses one that the ensemble does not have."""
WordTokens = Annotated[Positive, told("the most tokens of a word, for text without spaces")]


def _batch_size(value: object) -> object:
    if value == "auto" or (isinstance(value, int) and value is not True and value > 0):
        return value
    raise ValueError('must be a whole number above 0, or "auto"')


BatchSize = Annotated[Positive | Literal["auto"], BeforeValidator(_batch_size)]
"""Examples at a time: a number, or as many as fit into memory."""


class MethodOptions(BaseModel):
    """Base of all options; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


OptionsT = TypeVar("OptionsT", bound=MethodOptions)


def parse(options: type[OptionsT], values: Mapping[str, Any], owner: str) -> OptionsT:
    """Build `options` from plain values.

    Raises:
        UserError: an unknown key or a value that is not allowed, named with what is.
    """
    try:
        return options.model_validate(dict(values))
    except ValidationError as error:
        raise UserError(_sentence(error, options, owner)) from None


def _sentence(error: ValidationError, options: type[MethodOptions], owner: str) -> str:
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        names = ", ".join(options.model_fields) or "none"
        hint = meant(name, options.model_fields)
        return f"{owner} has no option {name!r}; its options are: {names}{hint}"
    said = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    reason = said.replace("should be", "must be")
    return f"{owner}: {name} {reason}, not {first['input']!r}"
