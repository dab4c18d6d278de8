"""What may stand in a field, in words, and tables of fields, read off a JSON schema."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from adafuse.decoding.options import CHANGE_WHEN
from adafuse.docs.markdown import table

Schema = Mapping[str, Any]

_HEAD = ("field", "value", "without it", "meaning", "change it when")


def fields_table(section: Schema, required: Collection[str]) -> str:
    """Return a table of the fields of a section, in the order in which they are declared."""
    rows = [_row(name, field, name in required) for name, field in section["properties"].items()]
    columns = [number for number, _ in enumerate(_HEAD) if number < 4 or any(r[4] for r in rows)]
    return table([_HEAD[c] for c in columns], [[row[c] for c in columns] for row in rows])


def _row(name: str, field: Schema, required: bool) -> tuple[str, ...]:
    missing = "required" if required else default(field)
    return (f"`{name}`", value(field), missing, field["description"], field.get(CHANGE_WHEN, ""))


def default(field: Schema) -> str:
    """Return the value of a field that is not given; nothing for sections and absent values."""
    found = field.get("default")
    if found is None or isinstance(found, dict):
        return ""
    return f"`{json.dumps(found, ensure_ascii=False) if not isinstance(found, str) else found}`"


def value(field: Schema) -> str:
    """Say in words which values a field takes."""
    *kinds, last = dict.fromkeys(_kinds(field))
    return f"{', '.join(kinds)} or {last}" if kinds else last


def _kinds(field: Schema) -> Iterator[str]:
    for each in field.get("anyOf", ()):
        yield from _kinds(each)
    if "$ref" in field:
        yield "section"
    elif "const" in field or "enum" in field:
        yield from (f"`{each}`" for each in field.get("enum", [field.get("const")]))
    elif field.get("type") not in (None, "null"):
        yield _kind(field)


def _kind(field: Schema) -> str:
    match field["type"]:
        case "boolean":
            return "`true` or `false`"
        case "integer" | "number":
            return ("whole number" if field["type"] == "integer" else "number") + _limits(field)
        case "array":
            inner = value(field["items"]) if field.get("items") else "values"
            return "list of " + re.sub(r"\b(text|number)\b", r"\1s", inner)
        case "object" if "patternProperties" in field:
            return "a section for each name"
        case "object":
            return "values by name"
    return "text"


def _limits(field: Schema) -> str:
    names = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to"}
    names["exclusiveMaximum"] = "below"
    return "".join(f" {word} {field[name]:g}" for name, word in names.items() if name in field)
