"""What all sections share: frozen, unknown keys refused, and the types of their fields."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

SAFE_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"

Name = Annotated[str, Field(pattern=SAFE_NAME)]
Text = Annotated[str, Field(min_length=1, strict=True)]
Count = Annotated[int, Field(ge=1, strict=True)]
Number = Annotated[int, Field(ge=0, strict=True)]
Figure = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
Flag = Annotated[bool, Field(strict=True)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _as_text(identifier: object) -> object:
    whole = isinstance(identifier, int) and not isinstance(identifier, bool)
    return str(identifier) if whole else identifier


Identifier = Annotated[Text, BeforeValidator(_as_text, json_schema_input_type=str | int)]


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(frozen=True, extra="forbid")
