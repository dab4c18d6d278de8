"""The journal of an interrupted job, and the lock that keeps it to one writer."""

import json
import logging
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, SoftFileLock, Timeout

from adafuse.errors import UserError
from adafuse.files import write_bytes

logger = logging.getLogger(__name__)

Row = dict[str, Any]

WAIT = 10.0
"""Seconds that a job waits for the lock of one that was stopped a moment ago."""


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Hold the lock of `path`, which leaves no file."""
    file = _lock_file(path)
    lock = FileLock(file)
    try:
        lock.acquire(timeout=WAIT)
    except Timeout:
        raise UserError(
            f"{str(path)!r} is being written by {_holder(path)}; wait for that job or stop it, then"
            f" run again (if it is gone, delete {str(file)!r})"
        ) from None
    try:
        if not isinstance(lock, SoftFileLock):  # which signs its marker itself, in the same form
            with suppress(OSError):  # a full disk: the lock holds without a name in it
                file.write_text(f"{os.getpid()}\n{socket.gethostname()}\n")
        yield
    finally:
        # Deleted while it is held: whoever waits for it sees that, and begins again.
        with suppress(OSError):
            file.unlink()
        lock.release()


def writer(path: Path) -> str | None:
    """Return which process is writing `path`, for people; None if nobody is."""
    if not _lock_file(path).is_file():
        return None
    try:
        with FileLock(_lock_file(path)).acquire(timeout=0):
            return None
    except Timeout:
        return _holder(path)
    except OSError:  # a folder that cannot be written has no writer
        return None


def _lock_file(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _holder(path: Path) -> str:
    try:
        process, host = _lock_file(path).read_text().split()[:2]
    except (OSError, ValueError):
        return "another process"
    return f"process {process} on {host}"


def journal_path(out: Path) -> Path:
    return out.with_suffix(".journal")


class Journal:
    """Finished rows by id, appended to a file as they come; rows of another key or id are ignored.

    As a context it is locked, and drops a torn last line and the ignored ones; without that it can
    be read while a job writes it.
    """

    def __init__(self, path: Path, key: str, ids: Iterable[str]) -> None:
        self.path = path
        self._key = key
        self._ids = frozenset(ids)
        self._held = ExitStack()
        self.rows: dict[str, Row] = {}
        self._read()

    def __enter__(self) -> Self:
        with ExitStack() as held, self._explaining_errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(only_writer(self.path))
            content, own = self._read()
            if content != own:
                torn = "" if content.endswith(b"\n") else " and a torn line"
                logger.warning(
                    "%s: dropping %d rows of another configuration, shard or attempt%s",
                    self.path, content.count(b"\n") - len(self.rows), torn,
                )  # fmt: skip
                write_bytes(self.path, own)
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def append(self, identifier: str, row: Row) -> None:
        """Add a finished example, or replace it; from here on a crash does not lose it."""
        entry = {"key": self._key, "id": identifier, "row": row}
        with self._explaining_errors(), self.path.open("ab") as file:
            file.write(json.dumps(entry).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.rows[identifier] = row

    def _read(self) -> tuple[bytes, bytes]:
        """Take over the rows of the file; return all of its bytes, and those of the rows."""
        content = self.path.read_bytes() if self.path.is_file() else b""
        own: dict[str, bytes] = {}
        self.rows = {}
        for line in content.split(b"\n")[:-1]:
            with suppress(ValueError, KeyError, TypeError):  # pieces, from a crash of the machine
                entry = json.loads(line)
                if entry["key"] == self._key and entry["id"] in self._ids:
                    self.rows[entry["id"]], own[entry["id"]] = entry["row"], line + b"\n"
        return content, b"".join(own.values())

    @contextmanager
    def _explaining_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(
                f"journal {str(self.path)!r} cannot be written ({error.strerror}); make room or"
                f" give a results folder that can, and run again: its {len(self.rows)} rows are"
                " kept"
            ) from None
