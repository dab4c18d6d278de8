"""The journal of an interrupted job, and the lock that keeps it to one writer."""

import hashlib
import json
import logging
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, SoftFileLock, Timeout

from adafuse.errors import UserError
from adafuse.storage.files import write_bytes

logger = logging.getLogger(__name__)

Row = dict[str, Any]


def text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def digest_of(*parts: Any) -> str:
    """Return the digest of JSON-ready parts: of all that a row or a file is made from."""
    return text_digest("".join(json.dumps(part) + "\n" for part in parts))


WAIT = 10.0
"""Seconds that a job waits for the lock of one that was stopped a moment ago."""


@contextmanager
def only_writer(path: Path, what: str = "job", patience: float = WAIT) -> Iterator[None]:
    """Hold the lock of `path`, which leaves no file; `what` is whoever else may hold it.

    It is waited for; -1 is any time.
    """
    file = _lock_file(path)
    lock = FileLock(file)
    try:
        lock.acquire(timeout=patience)
    except Timeout:
        raise UserError(
            f"{str(path)!r} is being written by {_holder(path)}; wait for that {what} or stop it,"
            f" then run again (if it is gone, delete {str(file)!r})"
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
    """Finished rows by id, appended to a file as they come; `servers` has those that decoded them.

    Each line is the first digits of the SHA-256 of what follows them, then the row and its digest
    as JSON. Those of `digests`, by id, are read; other rows stay in the file, lines that no journal
    wrote do not. As a context it is locked; without that it can be read while a job writes it.
    """

    def __init__(self, path: Path, digests: Mapping[str, str], patience: float = WAIT) -> None:
        self.path = path
        self._patience = patience
        self._digests = digests
        self._held = ExitStack()
        self._servers: list[Any] = []
        self.rows: dict[str, Row] = {}
        self.servers: dict[str, list[Any]] = {}
        self._read()

    def __enter__(self) -> Self:
        with ExitStack() as held, self._explaining_errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(only_writer(self.path, patience=self._patience))
            content, good = self._read()
            if content != good:
                bad = len(content.splitlines()) - good.count(b"\n")
                logger.warning("%s: dropping damaged lines (%d)", self.path, bad)
                write_bytes(self.path, good)
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def continue_with(
        self, servers: list[Any], same: Callable[[list[Any], list[Any]], bool]
    ) -> None:
        """Append rows of these servers from now on, and drop those of other ones."""
        self._servers = servers
        for name in [n for n in self.rows if not same(self.servers.get(n, []), servers)]:
            del self.rows[name]

    def append(self, identifier: str, row: Row) -> None:
        """Add a finished example, or replace it; from here on a crash does not lose it."""
        servers = {"servers": self._servers} if self._servers else {}
        entry = json.dumps({"digest": self._digests[identifier], **servers, "row": row}).encode()
        with self._explaining_errors(), self.path.open("ab") as file:
            file.write(_sum(entry) + b" " + entry + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.rows[identifier], self.servers[identifier] = row, self._servers

    def _read(self) -> tuple[bytes, bytes]:
        """Take over the rows of the file; return all of its bytes, and those of its good lines."""
        content = self.path.read_bytes() if self.path.is_file() else b""
        good = list(_good_lines(content))
        stored = {entry["digest"]: entry for entry in map(_entry, good)}
        known = {n: stored[digest] for n, digest in self._digests.items() if digest in stored}
        self.rows = {name: entry["row"] for name, entry in known.items()}
        self.servers = {name: entry.get("servers", []) for name, entry in known.items()}
        return content, b"".join(line + b"\n" for line in good)

    @contextmanager
    def _explaining_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(
                f"journal {str(self.path)!r} cannot be written ({error.strerror}); make room or"
                f" give another results folder, and run again: its {len(self.rows)} rows are"
                " kept"
            ) from None


def too_many(failed: int, rows: int, share: float) -> bool:
    """Whether a larger share of the rows failed; divided, for 0.29 times 100 is less than 29."""
    return failed > 0 and failed / rows > share


def journal_rows(
    path: Path, of: Callable[[list[Any]], bool] = lambda servers: True
) -> dict[str, Row]:
    """Return the rows `of` some servers in a journal by their digests; none if it is gone."""
    try:
        content = path.read_bytes()
    except OSError:
        return {}
    entries = map(_entry, _good_lines(content))
    return {each["digest"]: each["row"] for each in entries if of(each.get("servers", []))}


def is_foreign(path: Path) -> bool:
    """Whether a file has something in it, and does not begin as a journal, torn or whole."""
    begun = path.read_bytes()[:17] if path.is_file() else b""
    return begun != b"" and re.fullmatch(rb"[0-9a-f]{16} |[0-9a-f]{1,16}", begun) is None


def _good_lines(content: bytes) -> Iterator[bytes]:
    for line in content.split(b"\n")[:-1]:
        digits, _, entry = line.partition(b" ")
        if digits == _sum(entry):
            yield line


def _entry(line: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads(line.partition(b" ")[2])
    return entry


def _sum(entry: bytes) -> bytes:
    return hashlib.sha256(entry).hexdigest()[:16].encode()
