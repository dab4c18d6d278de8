"""Tables of the options of decoding methods, and of scorers."""

import json
from collections.abc import Mapping
from typing import Any

from adafuse.decoding.method import Method
from adafuse.docs.fields import value
from adafuse.docs.markdown import table
from adafuse.methods import METHODS
from adafuse.metrics.registry import SCORERS
from adafuse.metrics.scorer import Metric
from adafuse.metrics.selection import SELECTIONS, Selection

Owners = Mapping[str, type[Method[Any]] | type[Selection[Any]]]


def options_table() -> str:
    """Return the options of all methods of this project, then those of choices between runs."""
    own = {name: method for name, method in METHODS.items() if _is_own(method)}
    rows = [*_rows(own), *_rows(SELECTIONS)]
    return table(("method", "option", "value", "default", "meaning"), rows)


def scorers_table() -> str:
    """Return all scorers with what they report; the first metric stands in the main table."""
    rows = [
        (f"`{name}`", scorer.doc, ", ".join(_metric(each) for each in scorer.metrics))
        for name, scorer in SCORERS.items()
    ]
    return table(("scorer", "meaning", "metrics"), rows)


def _metric(metric: Metric) -> str:
    return f"{metric.label} (`{metric.name}`)"


def _is_own(method: type[Method[Any]]) -> bool:
    """Tell a method of this project from one that an installed package brings."""
    return method.__module__.startswith("adafuse.")


def _rows(owners: Owners) -> list[tuple[str, ...]]:
    return [
        (f"`{name}`", f"`{option}`", value(field), _default(field), field["description"])
        for name, owner in owners.items()
        for option, field in owner.Options.model_json_schema().get("properties", {}).items()
    ]


def _default(field: Mapping[str, Any]) -> str:
    if "default" not in field:
        return "required"
    given = field["default"]
    return f"`{given if isinstance(given, str) else json.dumps(given)}`"
