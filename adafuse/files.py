"""Reading a user's text file, and writing a file so that others see the whole of it or nothing."""

import glob
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from adafuse.errors import UserError

PACKAGE = Path(__file__).parent
_TOY = "adafuse/toy/"


def shipped(name: str) -> Path:
    """Return `workflow`, `config` or `environment.yml`: in the wheel, or beside the package."""
    inside = PACKAGE / "shipped" / name
    return inside if inside.exists() else PACKAGE.parent / name


def located(path: str) -> str:
    """Return a path; one below adafuse/toy/ that is not here is that of the package."""
    inside = PACKAGE.parent / path
    elsewhere = path.startswith(_TOY) and not Path(path).exists() and inside.exists()
    return str(inside) if elsewhere else path


def read_text(path: Path, kind: str) -> str:
    """Return the text of a UTF-8 file, line ends as they are; errors begin with its kind."""
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{kind} {str(path)!r} cannot be read: {error}") from None


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
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        yield temporary
    except OSError as error:
        # Arrow puts words of its own around what the system says.
        reason = os.strerror(error.errno) if error.errno else str(error).split("\n")[0]
        raise UserError(
            f"{str(path)!r} cannot be written ({reason}); make room or give a folder that can be"
            " written"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


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


def check_writable(path: Path) -> None:
    """Find out now, not after hours of work, whether `path` can be written."""
    if path.is_dir():
        raise UserError(f"{str(path)!r} is a folder; give the name of a file")
    with _temporary(path):
        pass
