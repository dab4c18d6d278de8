"""A journal of finished examples: what an interrupted job leaves behind for the next attempt.

It is no output of the workflow, so that nothing deletes it when a job fails, and one line is one
example, so that at most the example being written is lost.
"""

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, Self

from adafuse.errors import UserError

logger = logging.getLogger(__name__)

Values = dict[str, Any]


class Journal:
    """Finished rows by id, appended to a file as they come; only rows of `key` are its own.

    Opening it drops a torn last line and lines of other keys; `wanted` are the ids of the job.
    """

    def __init__(self, path: Path, key: str, wanted: Iterable[str]) -> None:
        self.path = path
        self._key = key
        self._file: IO[bytes] | None = None
        ids = set(wanted)
        self.rows = {name: row for name, row in self._kept().items() if name in ids}

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._rewrite()
            self._file = self.path.open("ab")
        except OSError as error:
            raise UserError(
                f"journal {str(self.path)!r} cannot be written ({error.strerror}); give a results"
                " folder that can"
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def append(self, identifier: str, row: Values) -> None:
        """Add a finished example; it survives the end of this process from here on."""
        assert self._file is not None
        self._file.write(self._line(identifier, row))
        self._file.flush()
        self.rows[identifier] = row

    def remove(self) -> None:
        """Delete the journal, once its rows are stored elsewhere."""
        self.path.unlink(missing_ok=True)

    def _kept(self) -> dict[str, Values]:
        if not self.path.is_file():
            return {}
        *lines, torn = self.path.read_bytes().split(b"\n")
        if torn:
            logger.info("dropping a torn line of %s", self.path)
        entries = [entry for line in lines if (entry := _parsed(line))]
        return {each["id"]: each["row"] for each in entries if each.get("key") == self._key}

    def _rewrite(self) -> None:
        # Renamed into place: a kill in between leaves the old journal whole.
        temporary = self.path.with_name(self.path.name + ".tmp")
        temporary.write_bytes(b"".join(self._line(*item) for item in self.rows.items()))
        temporary.replace(self.path)

    def _line(self, identifier: str, row: Values) -> bytes:
        return json.dumps({"key": self._key, "id": identifier, "row": row}).encode() + b"\n"


def _parsed(line: bytes) -> Values | None:
    """Return an entry; None for a line that a crash of the machine left in pieces."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) and {"id", "row"} <= value.keys() else None
