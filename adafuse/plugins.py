"""What others bring: methods, scorers and fusion rules of packages and of single Python files."""

import ast
import hashlib
import inspect
import logging
import os
import re
import sys
import sysconfig
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import invalidate_caches
from importlib.machinery import SourceFileLoader
from importlib.metadata import Distribution, entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import Any

from adafuse.errors import ExampleError, UserError, nearest, unknown
from adafuse.storage.files import files_below

logger = logging.getLogger(__name__)

_OWN = "adafuse"
_BROKEN: dict[tuple[str, str], str] = {}
_BROUGHT: dict[int, tuple[object, str]] = {}  # by its identity: what it is, and its module
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
            _BROUGHT[id(brought)] = brought, entry.module
            add(brought)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # none of it is of AdaFuse
            sentence = f"{kind} {entry.name!r} of {release} cannot be used ({_reason(error)})"
            _BROKEN[kind, entry.name] = sentence
            logger.warning("%s", sentence)
            logger.info("%s cannot be used:", entry.name, exc_info=True)
        else:
            package = _package(entry.module)
            _RELEASES[package], _DISTRIBUTIONS[package] = release, entry.dist


def _reason(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def not_there(kind: str, name: object, choices: list[str]) -> str:
    """Say that a name is unknown, or what is wrong with the package that should bring it."""
    if broken := _BROKEN.get((kind, str(name))):
        return f"{broken}; repair or uninstall that package"
    return unknown(kind, name, choices)


def module_of(brought: object) -> str:
    """Return the module that brings something: the one that registers it, if it is registered."""
    _, module = _BROUGHT.get(id(brought)) or (None, getattr(brought, "__module__", None))
    return module or _OWN


def twice(kind: str, name: str, first: object, second: object) -> str:
    """Say that two things have the same name, and where both are."""
    where = " and ".join(dict.fromkeys(map(module_of, (first, second))))
    return f"there are two {kind}s {name!r} (of {where}); rename one of them"


def note(brought: object) -> None:
    """Note which module registers something: the caller of the function that calls this one."""
    frame = inspect.currentframe()
    caller = frame and frame.f_back and frame.f_back.f_back
    if caller is not None:
        _BROUGHT.setdefault(id(brought), (brought, caller.f_globals.get("__name__", _OWN)))


class _Source(SourceFileLoader):
    """Compiles a file as it is now: bytecode of an earlier one may have its size and second."""

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def load_file(path: str) -> None:
    """Run a Python file that registers methods, fusion rules or scorers; once.

    It can import the modules that lie beside it.

    Raises:
        UserError: the file cannot be used, with the reason.
    """
    place, what = Path(path).resolve(), f"plug-in {path!r}"
    _check_file(place, what)
    known = sys.modules.get(place.stem)
    if known is not None and _file_of(place.stem) == place:
        return
    invalidate_caches()
    other = known.__spec__ if known else find_spec(place.stem)
    if known or (other and other.origin and Path(other.origin).resolve() != place):
        where = other.origin if other else "this program"
        raise UserError(f"{what} has the name of another module ({where}); rename it")
    if str(place.parent) not in sys.path:
        sys.path.append(str(place.parent))
    spec = spec_from_file_location(place.stem, place, loader=_Source(place.stem, str(place)))
    assert spec is not None and spec.loader is not None
    module = sys.modules[place.stem] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[place.stem]
        if isinstance(error, KeyboardInterrupt):
            raise
        logger.info("%s cannot be loaded:", what, exc_info=True)
        reason = str(error) if isinstance(error, UserError) else _reason(error)
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(place)]
        at = f" (line {lines[-1]})" if lines else ""
        raise UserError(f"{what} cannot be loaded{at}: {reason}") from error


def _check_file(place: Path, what: str) -> None:
    if place.is_dir():
        raise UserError(f"{what} is a folder; name the Python files in it")
    if not place.is_file():
        beside = [each.name for each in place.parent.glob("*.py")]
        raise UserError(f"{what} does not exist; check its path{nearest(place.name, beside)}")
    if place.suffix != ".py":
        raise UserError(f"{what} is not a Python file; name a file that ends with .py")
    if not place.stem.isidentifier():
        better = re.sub(r"\W|^(?=\d)", "_", place.stem)
        raise UserError(f"{what} cannot be imported under that name; rename it to {better}.py")


def _file_of(module: str) -> Path | None:
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file).resolve() if file else None


def said(error: BaseException, brought: object = None) -> str:
    """Say what went wrong; of an error in the code of a plug-in, also its kind and its place.

    So it does where AdaFuse's code raised it while it ran what a plug-in `brought`.
    """
    message = str(error) or type(error).__name__
    if isinstance(error, UserError | ExampleError):
        return message
    at, through = places(error)
    if at is None and is_outside(brought):
        module = module_of(brought)
        at = through or (_file_of(module) or Path(module)).name
    kind = f"{type(error).__name__}: {error}".removesuffix(": ")
    return message if at is None else f"{kind} ({at})"


def places(error: BaseException) -> tuple[str | None, str | None]:
    """Return the line of a plug-in that raised an error, and the last that it came through."""
    known, at, through = {module for _, module in _BROUGHT.values()} | {*_RELEASES}, None, None
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = frame.f_globals.get("__name__", "")
        if (package := _package(module)) == _OWN:
            at = None
        elif module in known or package in known:
            at = through = f"{Path(frame.f_code.co_filename).name}, line {line}"
    return at, through


def is_outside(brought: object) -> bool:
    """Return whether a plug-in brings something."""
    return _package(module_of(brought)) != _OWN


def code_of(*used: object) -> dict[str, str]:
    """Return who brings what is `used`, but AdaFuse's own, with the digest of the code.

    That is the code of the modules that bring it, of what these import of the same origin, and all
    data files of the package, whether or not its version changes.
    """
    modules = defaultdict[str, set[str]](set)
    for each in used:
        module = module_of(each)
        modules[_package(module)].add(module)
    modules.pop(_OWN, None)
    return {
        _RELEASES.get(package, package): _code_digest(package, tuple(sorted(own)))
        for package, own in sorted(modules.items())
    }


def _package(module: str) -> str:
    """Return the outermost package of a module that is not a namespace, which others may share."""
    parts = module.split(".")
    names = (".".join(parts[: number + 1]) for number in range(len(parts)))
    return next((n for n in names if getattr(sys.modules.get(n), "__file__", None)), module)


@cache
def _code_digest(package: str, modules: tuple[str, ...]) -> str:
    files = _recorded(_DISTRIBUTIONS.get(package))
    if place := getattr(sys.modules.get(package), "__file__", None):  # a notebook has none
        files = _used(Path(place), package, modules, files)
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


def _used(
    place: Path, package: str, modules: Iterable[str], recorded: dict[str, Path]
) -> dict[str, Path]:
    """Return the files by name that modules of a package use: code that they import, all data.

    All code counts if some of it imports what a variable names. Of code that is not installed,
    which no record lists, follow what it imports and names beside its package, too.
    """
    is_folder = place.name == "__init__.py"
    root = place.parents[package.count(".") + is_folder]
    inside = [*files_below(place.parent)] if is_folder else []
    there = {path.resolve() for path in (*recorded.values(), *inside, place)}
    loose = place.resolve() not in {path.resolve() for path in recorded.values()}
    loose &= str(root) not in sysconfig.get_paths().values()
    found, named_by_variables = set[Path](), False
    waiting = [Path(getattr(sys.modules.get(name), "__file__", None) or place) for name in modules]
    while waiting:
        path = waiting.pop()
        if path not in found and (loose or path.resolve() in there):
            found.add(path)
            named, by_variable = _named_in(path, root, loose=loose)
            waiting += [*named, *_packages_above(path, root)]
            named_by_variables |= by_variable
    if named_by_variables:
        found |= {*(place.parent.glob("*.py") if loose and not is_folder else inside)}
    else:
        recorded = {n: path for n, path in recorded.items() if path.suffix != ".py"}
        inside = [path for path in inside if path.suffix != ".py"]
    names = {os.path.relpath(path, root).replace(os.sep, "/"): path for path in (*inside, *found)}
    return recorded | {name: path for name, path in names.items() if not _NO_CODE.search(name)}


def _packages_above(file: Path, root: Path) -> Iterator[Path]:
    """Yield what Python runs before it imports a module: its packages from `root` on."""
    for folder in file.parents:
        if folder == root or root not in folder.parents:
            return
        yield from filter(Path.is_file, [folder / "__init__.py"])


_BY_VARIABLE = {
    *("import_module", "__import__", "spec_from_file_location", "exec"),
    *("iter_modules", "walk_packages", "run_module", "run_path"),
}


def _named_in(file: Path, root: Path, *, loose: bool) -> tuple[list[Path], bool]:
    """Return the modules that a module imports from its own root, and the files that it names.

    Also return whether it imports what only a variable names.
    """
    try:
        nodes = [*ast.walk(ast.parse(file.read_bytes()))] if file.suffix == ".py" else []
    except (SyntaxError, ValueError):
        return [], False
    found, by_variable = list[Path](), False
    for node in nodes:
        match node:
            case ast.Import():
                for each in node.names:
                    found += _modules(root, each.name)
            case ast.ImportFrom(module=module, level=level):
                base = file.parents[level - 1] if level else root
                for each in node.names:
                    found += _modules(base, f"{module or ''}.{each.name}".strip("."))
            case ast.Constant(value=str() as text) if loose and os.path.isfile(file.parent / text):
                found.append(file.parent / text)
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in _BY_VARIABLE:
                by_variable = True
    return found, by_variable


def _modules(base: Path, dotted: str) -> Iterator[Path]:
    """Yield the files that importing a name runs; its last part may be no module."""
    place = base
    for part in dotted.split(".") if dotted.partition(".")[0] != _OWN else ():
        place = place / part
        files = (place / "__init__.py", place.parent / f"{part}.py")
        yield from filter(Path.is_file, files)
