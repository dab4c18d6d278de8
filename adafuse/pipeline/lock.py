"""One writer at a time: a file is written by the process that holds the lock beside it.

The lock is the kernel's (flock): it goes with its process, however that ends, and network file
systems pass it on between machines. Where a file system has none, filelock falls back to a marker
file, which a dead process of the same machine loses, too.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout

from adafuse.errors import UserError

WAIT = 10.0
"""Seconds that a job waits for one before it, which was stopped a moment ago and is about to go."""


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Hold the lock of `path`; nothing is left of it afterwards.

    Raises:
        UserError: another process holds it.
        OSError: the folder cannot be written.
    """
    lock = FileLock(_beside(path))
    try:
        lock.acquire(timeout=WAIT)
    except Timeout:
        raise UserError(
            f"{str(path)!r} is being written by {_told(path)}; wait for that job or stop it, then"
            f" run again (if it is gone, delete {str(_beside(path))!r})"
        ) from None
    try:
        if not isinstance(lock, SoftFileLock):  # which signs its marker itself, in the same form
            _sign(_beside(path))
        yield
    finally:
        # Deleted while it is held: whoever waits for it sees that, and begins again.
        with suppress(OSError):
            _beside(path).unlink()
        lock.release()


def writer(path: Path) -> str | None:
    """Return which process is writing `path`, for people; None if nobody is."""
    if not _beside(path).is_file():
        return None
    lock = FileLock(_beside(path))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return _told(path)
    except OSError:  # a folder that cannot be written has no writer
        return None
    lock.release()
    return None


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _sign(path: Path) -> None:
    with suppress(OSError):  # a full disk: the lock holds without a name in it
        path.write_text(f"{os.getpid()}\n{socket.gethostname()}\n")


def _told(path: Path) -> str:
    try:
        process, host = _beside(path).read_text().split()[:2]
    except (OSError, ValueError):
        return "another process"
    return f"process {process} on {host}"
