"""The traces of requests: Parquet files that `adafuse show` and `adafuse report` open."""

import json
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from adafuse.decoding.run import Run
from adafuse.ensemble import Ensemble, settings_of
from adafuse.errors import UserError
from adafuse.records.result import Chat, Prompt, Result
from adafuse.storage.files import check_writable, without_folders
from adafuse.storage.journal import Journal, journal_rows
from adafuse.storage.parquet import as_table, read_arrow, read_metadata
from adafuse.storage.traces import PROMPT_FIELDS, prompt_row, write_trace

ROWS, BYTES = 1024, 16 << 20
"""A file is whole, and the next one begun, at so many rows or bytes of its journal."""
REST = 20
"""A file is written again when this many times the seconds have passed that it took last."""

_OWN = [pa.field(name, pa.string()) for name in ("method", "options", "plugins")]


class Traces:
    """The files `requests-TIME.parquet` of a folder, and the journal of the newest.

    A row is in the journal before its answer is sent. The newest file is written as rows come, but
    under load less often; a server that was killed left the others in its journal, which the next
    one makes a file of. All together have about `mib` MiB: the oldest files are deleted.
    """

    def __init__(self, folder: Path, ensemble: Ensemble, mib: int) -> None:
        check_writable(folder / "requests.journal")
        self._folder, self._most = folder, mib << 20
        self._ensemble = ensemble
        path = folder / "requests.journal"
        self._known = {name: name for name in journal_rows(path)}
        self._held, self._lock = ExitStack(), threading.Lock()
        self._journal = self._held.enter_context(Journal(path, self._known))
        self._next, self._file = 0.0, self._new_file()
        if self._journal.rows:
            self._write()
            self._begin_next()

    def add(self, name: str, prompt: Prompt, result: Result, run: Run) -> None:
        """Keep a request.

        Raises:
            UserError: the journal cannot be written.
            OSError: the file cannot.
        """
        row = {**prompt_row(name, prompt, result), **_described(run, prompt)}
        for column in ("error", "traceback"):
            row[column] = row[column] and without_folders(row[column])
        with self._lock:
            self._known[name] = name
            self._journal.append(name, row)
            whole = len(self._journal.rows) >= ROWS or self._journal.path.stat().st_size >= BYTES
            if whole or time.monotonic() > self._next:
                self._write()
            if whole:
                self._begin_next()

    def find(self, name: str) -> dict[str, Any] | None:
        """Return the row of a request, with the names of its `models`; None if there is none."""
        with self._lock:
            if (row := self._journal.rows.get(name)) is not None:
                return {**row, "models": [model.name for model in self._ensemble.models]}
        for file in sorted(self._folder.glob("requests-*.parquet"), reverse=True):
            with suppress(UserError):  # deleted meanwhile
                ids = read_arrow(file, ["id"])["id"].to_pylist()
                if name in ids:
                    (row,) = read_arrow(file).slice(ids.index(name), 1).to_pylist()
                    return {**row, "models": read_metadata(file)["settings"]["models"]}
        return None

    def close(self) -> None:
        """Write what is not written yet."""
        with self._lock:
            if self._journal.rows:
                self._write()
                self._begin_next()
            self._held.close()

    def _new_file(self) -> Path:
        return self._folder / f"requests-{time.time_ns():020}.parquet"

    def _write(self) -> None:
        began, rows = time.monotonic(), list(self._journal.rows.values())
        used: dict[str, str] = {}
        for row in rows:
            used |= json.loads(row["plugins"])
        methods = {row["method"] for row in rows}
        settings = settings_of(self._ensemble, {"method": ", ".join(sorted(methods))})
        write_trace(self._file, as_table([*PROMPT_FIELDS, *_OWN], rows), settings, used)
        ended = time.monotonic()
        self._next = ended + REST * (ended - began)

    def _begin_next(self) -> None:
        """Leave the file, whose rows the journal need not keep, and delete the oldest files."""
        self._journal.path.unlink(missing_ok=True)
        self._journal.rows.clear()
        self._known.clear()
        self._file = self._new_file()
        sizes = 0
        for file in sorted(self._folder.glob("requests-*.parquet"), reverse=True):
            sizes += file.stat().st_size
            if sizes > self._most:
                file.unlink()


def _described(run: Run, prompt: Prompt) -> dict[str, str]:
    """Return how a request was decoded; options may name files, by their last parts here."""
    method = run.method
    options = method.options.model_dump(mode="json")
    limits = run.settings.model_dump(mode="json", exclude={"drafts", "batch_size", "engine"})
    if isinstance(prompt, Chat) and prompt.chat_template_kwargs:
        limits["chat_template_kwargs"] = prompt.chat_template_kwargs
    return {
        "method": method.name,
        "options": without_folders(json.dumps({**options, **limits}, ensure_ascii=False)),
        "plugins": json.dumps(method.plugins),
    }
