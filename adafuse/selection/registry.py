"""All selections by name."""

from collections.abc import Mapping
from typing import Any

from adafuse.methods.options import parse
from adafuse.selection.best_of import BestOf
from adafuse.selection.pairs import BestPair, DevelopmentPair
from adafuse.selection.selection import Selection

SELECTIONS: dict[str, type[Selection[Any]]] = {
    selection.name: selection for selection in (BestOf, BestPair, DevelopmentPair)
}


def selection(name: str, options: Mapping[str, Any]) -> Selection[Any]:
    """Return the selection `name` with `options` checked.

    Raises:
        UserError: an option that it does not have, or a value of the wrong form.
    """
    chosen = SELECTIONS[name]
    return chosen(parse(chosen.Options, options, f"method {name}"))


def is_oracle(method: str) -> bool:
    """Say whether a method has seen the answers."""
    return method in SELECTIONS and SELECTIONS[method].oracle
