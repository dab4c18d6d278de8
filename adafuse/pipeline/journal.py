"""A journal of finished examples: what an interrupted job leaves behind for the next attempt.

It is no output of the workflow, so that nothing deletes it when a job fails, and one line is one
example, so that at most the example being written is lost. It stays until the shards are merged: a
workflow that ends between a job and its own record of it deletes the job's output.
"""

import json
import logging
import os
import time
from collections.abc import Container, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from adafuse.errors import UserError
from adafuse.pipeline.lock import only_writer
from adafuse.traces.atomic import write_bytes

logger = logging.getLogger(__name__)

Values = dict[str, Any]

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT

SYNC_SECONDS = 1.0
"""A machine that goes down loses what was decoded in so many seconds; a process loses nothing."""


def journal_path(out: Path) -> Path:
    """Return where the journal of a job stands: beside what the job writes."""
    return out.with_suffix(".journal")


class Journal:
    """Finished rows by id, appended to a file as they come; only rows of `key` are its own.

    `wanted` are the ids of the job. As a context it is locked, and drops a torn last line and lines
    of other keys; without that it can be read while a job writes it.
    """

    def __init__(self, path: Path, key: str, wanted: Iterable[str]) -> None:
        self.path = path
        self._key = key
        self._wanted = frozenset(wanted)
        self._held = ExitStack()
        self._file = -1
        self._synced = 0.0
        self.rows: dict[str, Values] = {}
        self._read()

    def __enter__(self) -> Self:
        with ExitStack() as held:
            with self._told():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                held.enter_context(only_writer(self.path))
                self._clean(*self._read())
                self._file = os.open(self.path, _APPEND, 0o666)
                held.callback(os.close, self._file)
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with self._held, self._told():
            os.fsync(self._file)

    def append(self, identifier: str, row: Values) -> None:
        """Add a finished example; it survives the end of this process from here on.

        Raises:
            UserError: the disk is full, or cannot be written; the rows before are kept.
        """
        line = self._line(identifier, row)
        with self._told():
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            if time.monotonic() - self._synced > SYNC_SECONDS:
                os.fsync(self._file)
                self._synced = time.monotonic()
        self.rows[identifier] = row

    def forget(self, identifiers: Container[str]) -> None:
        """Drop some rows, which are then to be decoded again."""
        self.rows = {name: row for name, row in self.rows.items() if name not in identifiers}
        write_bytes(self.path, b"".join(self._line(*item) for item in self.rows.items()))
        with self._told():  # the name stands for another file now
            renewed = os.open(self.path, _APPEND)
            os.dup2(renewed, self._file)
            os.close(renewed)

    def _read(self) -> tuple[bytes, bytes]:
        """Take over the rows of the file; return all of its bytes, and those of the rows."""
        content = self.path.read_bytes() if self.path.is_file() else b""
        entries = [(line, _parsed(line)) for line in content.split(b"\n")[:-1]]
        own = [(line, value) for line, value in entries if value and value["key"] == self._key]
        known = {value["id"]: (line, value) for line, value in own if value["id"] in self._wanted}
        self.rows = {name: value["row"] for name, (_, value) in known.items()}
        return content, b"".join(line + b"\n" for line, _ in known.values())

    def _clean(self, content: bytes, own: bytes) -> None:
        """Make the file hold the rows and nothing else; it is whole at every moment."""
        if content == own:
            return
        dropped = content.count(b"\n") - len(self.rows)
        torn = not content.endswith(b"\n")
        logger.warning(
            "%s: dropping %d rows of another configuration or shard%s",
            self.path, dropped, " and a torn line" if torn else "",
        )  # fmt: skip
        if content.startswith(own):  # needs no room on a disk that may be full
            os.truncate(self.path, len(own))
        else:
            write_bytes(self.path, own)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(
                f"journal {str(self.path)!r} cannot be written ({error.strerror}); make room or"
                f" give a results folder that can, and run again: its {len(self.rows)} rows are"
                " kept"
            ) from None

    def _line(self, identifier: str, row: Values) -> bytes:
        return json.dumps({"key": self._key, "id": identifier, "row": row}).encode() + b"\n"


def _parsed(line: bytes) -> Values | None:
    """Return an entry; None for a line that a crash of the machine left in pieces."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(value, dict) and {"key", "id", "row"} <= value.keys()
    return value if whole and isinstance(value["id"], str) else None
