"""What a setting means, told where it is declared, for the JSON schema and docs/."""

from typing import Any

from pydantic import Field

CHANGE_WHEN = "change_when"
"""Keyword of the JSON schema that says when a user changes a setting."""


def told(meaning: str, when: str = "") -> Any:
    """Return the annotation of a field: what it means, and when to change it.

    Both are Markdown of one line, without a capital at the beginning and a full stop at the end.
    """
    return Field(description=meaning, json_schema_extra={CHANGE_WHEN: when} if when else None)
