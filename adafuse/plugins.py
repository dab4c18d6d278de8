"""What other packages bring by their entry points: methods, scorers and fusion rules."""

import hashlib
import logging
import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from adafuse.errors import unknown

logger = logging.getLogger(__name__)

_BROKEN: dict[tuple[str, str], str] = {}
_PACKAGES: dict[int, str] = {}  # of what was brought, by its identity
_RELEASES: dict[str, str] = {}


def add_installed(kind: str, add: Callable[[Any], object]) -> None:
    """Add what the entry points of the group "adafuse.KINDs" bring.

    One that cannot be added is a warning here, and an error where a user names it.
    """
    for entry in entry_points(group=f"adafuse.{kind.replace(' ', '_')}s"):
        package = entry.module.partition(".")[0]
        release = f"{entry.dist.name} {entry.dist.version}" if entry.dist else package
        try:
            brought = entry.load()
            add(brought)
        except Exception as error:  # noqa: BLE001 - none of it is of AdaFuse
            told = f"{kind} {entry.name!r} of {release} cannot be used ({_said(error)})"
            _BROKEN[kind, entry.name] = told
            logger.warning("%s", told)
        else:
            _PACKAGES[id(brought)], _RELEASES[package] = package, release


def _said(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def not_there(kind: str, name: object, choices: list[str]) -> str:
    """Say that a name is unknown, or what is wrong with the package that should bring it."""
    if told := _BROKEN.get((kind, str(name))):
        return f"{told}; repair or uninstall that package"
    return unknown(kind, name, choices)


def code_of(*used: object) -> dict[str, str]:
    """Return the packages that bring what is `used`, but AdaFuse's own, with their code's digest.

    Any change of a Python file of the package changes it, whether or not the version does.
    """
    modules = (getattr(each, "__module__", None) or "adafuse" for each in used)
    named = zip(used, modules, strict=True)
    names = {_PACKAGES.get(id(each), module.partition(".")[0]) for each, module in named}
    return {_RELEASES.get(name, name): _code_digest(name) for name in sorted(names - {"adafuse"})}


@cache
def _code_digest(package: str) -> str:
    module = sys.modules.get(package)
    folders = [Path(folder) for folder in getattr(module, "__path__", ())]
    files = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    if not files:  # a notebook, or what was not imported, has none
        files = [Path(getattr(module, "__file__", None) or "")]
    code = hashlib.sha256()
    for path in filter(Path.is_file, files):
        code.update(path.read_bytes())
    return f"code {code.hexdigest()[:12]}"
