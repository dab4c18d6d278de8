"""Options of methods on the command line: NAME=VALUE, values as in a configuration."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from adafuse.errors import UserError


def with_options(named: Mapping[str, Any], given: Sequence[str]) -> dict[str, Any]:
    """Return `named` and the options that are `given` as NAME=VALUE.

    Raises:
        UserError: no NAME=VALUE, a value that is no YAML, or an option that is given twice.
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
            raise UserError(f"--option {text!r} has a value that is no YAML; quote it") from None
    return options


def number_or_name(text: str) -> int | str:
    """Return a whole number as such, everything else as it is."""
    return int(text) if text.removeprefix("-").isdecimal() else text
