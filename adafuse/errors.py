"""The one exception for everything a user can cause, and how it reads."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """A mistake in a command, a configuration or an input file.

    Its message is one sentence with the offending value and the fix; the command line prints it
    without a traceback and exits with status 2.
    """


class ExampleError(Exception):
    """One example cannot go on, and says why in a sentence; the others do."""


def install(extra: str) -> str:
    """Return how to install an extra: in a clone of the project, and where it is published."""
    return f"run pip install '.[{extra}]' in a clone ('adafuse[{extra}]' where it is published)"


MOST_NAMES = 40
"""A message names no more choices: the runs of a configuration may be hundreds."""


def unknown(kind: str, value: object, choices: list[str]) -> str:
    """Return a sentence: `value` is an unknown `kind`, the choices, and the nearest of them."""
    names = ", ".join(choices[:MOST_NAMES]) or "none"
    if more := len(choices[MOST_NAMES:]):
        names += f" and {more} more"
    return f"unknown {kind} {value!r}; known are: {names}{nearest(value, choices)}"


def nearest(value: object, choices: Iterable[str]) -> str:
    """Return "; did you mean ...?" with the choice nearest to `value`, or nothing."""
    near = get_close_matches(str(value), list(choices), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
