"""The one exception for everything a user can cause, and how it reads."""


class UserError(Exception):
    """A mistake in a command, a configuration or an input file.

    Its message is one sentence with the offending value and the fix; the command line prints it
    without a traceback and exits with status 2.
    """


class ExampleError(Exception):
    """One example cannot go on, and says why in a sentence; the others do."""


def known(kind: str, value: object, choices: list[str]) -> str:
    """Say that `value` is no known `kind`, and which ones there are."""
    return f"unknown {kind} {value!r}; known are: {', '.join(choices)}"
