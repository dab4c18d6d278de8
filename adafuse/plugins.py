"""What other packages bring by their entry points: methods, scorers and fusion rules."""

import ast
import hashlib
import logging
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.metadata import Distribution, entry_points
from pathlib import Path
from typing import Any

from adafuse.errors import unknown
from adafuse.storage.files import files_below

logger = logging.getLogger(__name__)

_BROKEN: dict[tuple[str, str], str] = {}
_PACKAGES: dict[int, str] = {}  # of what was brought, by its identity
_RELEASES: dict[str, str] = {}
_DISTRIBUTIONS: dict[str, Distribution | None] = {}


def add_installed(kind: str, add: Callable[[Any], object]) -> None:
    """Add what the entry points of the group "adafuse.KINDs" bring.

    One that cannot be added is a warning here, and an error where a user names it.
    """
    for entry in entry_points(group=f"adafuse.{kind.replace(' ', '_')}s"):
        top = entry.module.partition(".")[0]
        release = f"{entry.dist.name} {entry.dist.version}" if entry.dist else top
        try:
            brought = entry.load()
            add(brought)
        except Exception as error:  # noqa: BLE001 - none of it is of AdaFuse
            sentence = f"{kind} {entry.name!r} of {release} cannot be used ({_said(error)})"
            _BROKEN[kind, entry.name] = sentence
            logger.warning("%s", sentence)
        else:
            package = _package(entry.module)
            _PACKAGES[id(brought)], _RELEASES[package] = package, release
            _DISTRIBUTIONS[package] = entry.dist


def _said(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def not_there(kind: str, name: object, choices: list[str]) -> str:
    """Say that a name is unknown, or what is wrong with the package that should bring it."""
    if broken := _BROKEN.get((kind, str(name))):
        return f"{broken}; repair or uninstall that package"
    return unknown(kind, name, choices)


def code_of(*used: object) -> dict[str, str]:
    """Return the packages that bring what is `used`, but AdaFuse's own, with their code's digest.

    Any change of a file of the package, or of the distribution that it is of, changes it, whether
    or not the version does.
    """
    named = {_PACKAGES.get(id(each)) or _package(_module_of(each)) for each in used}
    return {_RELEASES.get(name, name): _code_digest(name) for name in sorted(named - {"adafuse"})}


def _module_of(used: object) -> str:
    return getattr(used, "__module__", None) or "adafuse"


def _package(module: str) -> str:
    """Return the outermost package of a module that is not a namespace, which others may share."""
    parts = module.split(".")
    names = (".".join(parts[: number + 1]) for number in range(len(parts)))
    return next((n for n in names if getattr(sys.modules.get(n), "__file__", None)), module)


@cache
def _code_digest(package: str) -> str:
    files = _recorded(_DISTRIBUTIONS.get(package))
    if place := getattr(sys.modules.get(package), "__file__", None):  # a notebook has none
        installed = {path.resolve() for path in files.values()}
        files |= _beside(Path(place), package, follow=Path(place).resolve() not in installed)
    code = hashlib.sha256()
    for name, path in sorted(files.items()):
        if path.is_file():
            code.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return f"code {code.hexdigest()[:12]}"


_NO_CODE = re.compile(
    r"\.(pyc|pth)$|(^|/)(__pycache__/|__editable__|\.[^./])|\.(dist|egg)-info/"
    r"|^\.\./.*(bin|Scripts)/"
)


def _recorded(distribution: Distribution | None) -> dict[str, Path]:
    """Return the files of an installed distribution by name, data files among them."""
    if distribution is None or not distribution.read_text("RECORD"):
        return {}
    files = [file for file in distribution.files or () if not _NO_CODE.search(str(file))]
    return {str(file): Path(str(file.locate())) for file in files}


def _beside(place: Path, package: str, *, follow: bool) -> dict[str, Path]:
    """Return the files of a package or single module by name.

    Of code that is not installed, which no record lists, follow what it names beside itself.
    """
    is_folder = place.name == "__init__.py"
    root = place.parents[package.count(".") + is_folder]
    follow &= str(root) not in sysconfig.get_paths().values()
    files, seen, waiting = dict[str, Path](), set[Path](), [place.parent if is_folder else place]
    while waiting:
        if (path := waiting.pop()) in seen:
            continue
        seen.add(path)
        for file in files_below(path) if path.is_dir() else [path]:
            name = os.path.relpath(file, root).replace(os.sep, "/")
            if name not in files and not _NO_CODE.search(name):
                files[name] = file
                waiting += _named_in(file, root) if follow and file.suffix == ".py" else ()
    return files


def _named_in(file: Path, root: Path) -> Iterator[Path]:
    """Yield the modules that a module imports from its own root, and the files that it names."""
    try:
        nodes = ast.walk(ast.parse(file.read_bytes()))
    except (SyntaxError, ValueError):
        return
    for node in nodes:
        match node:
            case ast.Import():
                yield from _modules(root, [each.name for each in node.names])
            case ast.ImportFrom(module=str() as module, level=level):
                yield from _modules(file.parents[level - 1] if level else root, [module])
            case ast.ImportFrom(level=level):
                yield from _modules(file.parents[level - 1], [each.name for each in node.names])
            case ast.Constant(value=str() as text) if os.path.isfile(file.parent / text):
                yield file.parent / text


def _modules(root: Path, names: Iterable[str]) -> Iterator[Path]:
    for name in {name.partition(".")[0] for name in names} - {"adafuse"}:
        yield from filter(Path.exists, (root / f"{name}.py", root / name))
