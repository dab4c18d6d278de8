"""Reading a user's text file, and writing a file so that others see the whole of it or nothing."""

import glob
import gzip
import hashlib
import os
import re
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from adafuse.errors import UserError

PACKAGE = Path(__file__).parents[1]
_TOY = "adafuse/toy/"


def shipped(name: str) -> Path:
    """Return `workflow`, `config` or `environment.yml`: in the wheel, or beside the package."""
    inside = PACKAGE / "shipped" / name
    return inside if inside.exists() else PACKAGE.parent / name


def located(path: str) -> str:
    """Return a path with its `~` and `$VARIABLES` filled in.

    One below adafuse/toy/ that is not here is that of the package.

    Raises:
        UserError: no such home folder or variable, and no file of that name.
    """
    inside = PACKAGE.parent / path
    if path.startswith(_TOY) and not os.path.exists(path) and inside.exists():
        return str(inside)
    if path.split("/")[0] != "~" and os.path.lexists(path):
        return path
    known = {name for name, value in os.environ.items() if value}
    for name, braced in re.findall(r"\$([^\W\d]\w*)|\$\{(.*?)\}", path):
        if (name or braced) not in known:
            raise UserError(f"path {path!r}: variable {name or braced!r} is not set; write it out")
    filled = os.path.expandvars(os.path.expanduser(path))
    if filled.startswith("~"):
        raise UserError(f"path {path!r}: there is no such home folder; write it out")
    return filled


_PACKED = (".zip", ".bz2", ".xz", ".zst", ".7z", ".tar", ".tgz")


def read_text(path: Path, kind: str) -> str:
    """Return the text of a user's file, which may be gzipped; errors begin with its kind.

    A line ends with `\\n`; `\\r\\n` is read as that. A byte order mark is no part of the text.
    """
    name = f"{kind} {str(path)!r}"
    if path.suffix.lower() in _PACKED:
        raise UserError(f"{name} is packed; unpack it (only .gz is read as it is)")
    if path.suffix.lower() in (".xlsx", ".xls", ".ods"):
        raise UserError(f"{name} is a spreadsheet; save it as CSV in UTF-8, and name that file")
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    except (OSError, EOFError, zlib.error) as error:
        reason, fix = getattr(error, "strerror", None), "check its path"
        if not reason:
            reason, fix = f"its gzip data is cut off or damaged ({error})", "copy it again"
        raise UserError(f"{name} cannot be read: {reason}; {fix}") from None
    return text_of(data, name)


def text_of(data: bytes, name: str) -> str:
    """Return bytes as `read_text` does."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line, byte = data.count(b"\n", 0, error.start) + 1, data[error.start]
        raise UserError(
            f"{name}, line {line}, is not UTF-8 (byte 0x{byte:02x}); save it as UTF-8"
        ) from None
    # A mark begins a line where files were joined.
    text = re.sub("(?m)^\ufeff", "", text).replace("\r\n", "\n")
    if match := re.search("[\r\0]", text):
        line, what = text.count("\n", 0, match.start()) + 1, repr(match[0])
        raise UserError(
            f"{name}, line {line}, has the character {what}; save it as UTF-8, with line ends of"
            " Unix or Windows"
        )
    return text


_PART, _PARTS = 64 << 10, 16
_CLOCK = 2.0  # seconds in which a file may be written twice at the same time of its file system


def file_state(path: Path) -> str:
    """Return what is another string when the content of a file may be another.

    Copies keep size and modification time, some file systems have no change time or inode, and
    clocks are coarse. So parts of the content count, too, which are all of a file of up to a
    megabyte; a larger one that was changed a moment ago has no state that comes again.
    """
    status, parts = path.stat(), hashlib.sha256()
    step = max(_PART, (status.st_size - _PART) // (_PARTS - 1))
    with path.open("rb") as content:
        for start in range(0, status.st_size, step):
            content.seek(start)
            parts.update(content.read(_PART))
    if step > _PART and time.time() - status.st_ctime < _CLOCK:
        parts.update(os.urandom(8))
    return f"{' '.join(map(str, file_times(status)))} {parts.hexdigest()[:16]}"


def file_times(status: os.stat_result) -> tuple[int, ...]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder, and in what links in it lead to."""
    for place, folders, names in os.walk(folder, followlinks=True):
        here = Path(place)
        around = [
            each for each in folders if here.resolve().is_relative_to((here / each).resolve())
        ]
        folders[:] = sorted({*folders} - {*around})
        yield from filter(Path.is_file, map(here.joinpath, names))


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` that takes its place once it was written.

    The content is on the disk before the name changes. When writing fails, the temporary file is
    removed and whatever stood at `path` stays.
    """
    with _temporary(path) as temporary:
        yield temporary
        _sync(temporary)
        temporary.replace(path)
        _sync(path.parent)


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if _is_device(path):
            raise UserError(f"{str(path)!r} is a device or a pipe; give the name of a file")
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        yield temporary
    except OSError as error:
        # Arrow puts words of its own around what the system says.
        reason = os.strerror(error.errno) if error.errno else str(error).split("\n")[0]
        raise UserError(
            f"{str(path)!r} cannot be written ({reason}); make room or give a folder that can be"
            " written to"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _is_device(path: Path) -> bool:
    """Whether a file would take the place of something else, as of /dev/null for root."""
    special = path.exists() and not path.is_file() and not path.is_dir()
    return special or path.absolute().parent == Path("/dev")


def remove_torn(path: Path) -> None:
    """Delete what writers of `path` left that were killed; none may be at work."""
    for torn in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with suppress(OSError):
            torn.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, as UTF-8."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_writable(path: Path, *read: Path | None) -> None:
    """Find out now, not after hours of work, whether `path` can be written; refuse what is read."""
    if path.is_dir():
        raise UserError(f"{str(path)!r} is a folder; give the name of a file")
    for file in read:
        if file is not None and file.exists() and path.exists() and path.samefile(file):
            raise UserError(f"{str(path)!r} is a file that is read here; give another name")
    with _temporary(path):
        pass
    if path.is_symlink():
        raise UserError(
            f"{str(path)!r} is a link, which a file would replace; name the file that it leads to,"
            f" {os.path.realpath(path)!r}"
        )


_FOLDERS = re.compile(
    r"""(?<=['"])/[^'"]*/(?=[^'"/]+['"])"""  # a path in quotes, which may have spaces
    r"""|(?<![\w./:<-])/(?!v1/)[^\s'"]*/(?=[^\s/'"])"""
)


def without_folders(text: str) -> str:
    """Return a text whose absolute paths are cut to their last parts."""
    return _FOLDERS.sub("", text)
