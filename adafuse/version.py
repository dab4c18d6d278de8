"""Versions that identify a result."""

import platform
from importlib.metadata import PackageNotFoundError, version

__version__ = "0.1.0"

ENGINE_VERSION = 5
"""Part of every decode job's digest: raise it whenever the text that a method decodes, or what
its trace says of it, may change."""

SCORING_VERSION = 3
"""Part of the key of every score and of every choice by scores: raise it whenever scores of the
same texts may change, whatever the scorer."""

SCORER_VERSIONS = {"gsm8k": 1}
"""The same by scorer: raise it whenever a score of the same texts by this one may change."""

REPORT_VERSION = 14
"""Part of the key of every table, figure and page: raise it whenever one of them changes."""

_SCORING = SCORING_VERSION + sum(SCORER_VERSIONS.values())
CODE_VERSION = f"{__version__}-{ENGINE_VERSION}.{_SCORING}.{REPORT_VERSION}"
"""What a step's code must be to make what was planned."""


_PACKAGES = ("torch", "transformers", "tokenizers", "accelerate", "bitsandbytes", "pyarrow")


def installed_version(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def versions() -> dict[str, str | int | None]:
    """Return the versions that a result may depend on, without importing the packages."""
    return {
        "adafuse": __version__,
        "engine": ENGINE_VERSION,
        "python": platform.python_version(),
        **{package: installed_version(package) for package in _PACKAGES},
    }
