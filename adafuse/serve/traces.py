"""The traces of requests: Parquet files that `adafuse show` and `adafuse report` open."""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from adafuse.ensemble import Ensemble
from adafuse.files import check_writable
from adafuse.parquet import write_table
from adafuse.records import Prompt, Result, as_text
from adafuse.results import FIELDS
from adafuse.traces import result_columns
from adafuse.version import versions

ROWS, SECONDS = 256, 30.0
"""A file is written when so many requests have ended, or after so long."""


class Traces:
    """Files of a folder, each of requests that were decoded in the same way.

    They are written with the next request after `SECONDS`, and at the end; what is killed loses
    those that were not.
    """

    def __init__(self, folder: Path, ensemble: Ensemble) -> None:
        check_writable(folder / "requests.parquet")
        self._folder = folder
        self._models = {
            "models": [model.name for model in ensemble.models],
            "weights": list(ensemble.weights),
            "chat_date": [model.chat_date for model in ensemble.models],
        }
        self._rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._since = time.monotonic()
        self._lock = threading.Lock()

    def add(self, name: str, prompt: Prompt, result: Result, how: Mapping[str, Any]) -> None:
        """Keep a request, and write files if there is enough to write."""
        row = {"id": name, "prompt": as_text(prompt), **result_columns(result)}
        with self._lock:
            self._rows[json.dumps(how, sort_keys=True)].append(row)
            late = time.monotonic() - self._since > SECONDS
            if late or sum(map(len, self._rows.values())) >= ROWS:
                self._write()

    def write(self) -> None:
        """Write what is not written yet."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        written, self._rows = self._rows, defaultdict(list)
        self._since = time.monotonic()
        for how, rows in written.items():
            settings = {**self._models, **json.loads(how)}
            metadata = {"settings": settings, "versions": versions()}
            key = sha256(how.encode()).hexdigest()[:8]
            name = f"{settings['method']}-{key}-{time.time_ns():x}.parquet"
            write_table(self._folder / name, FIELDS, rows, metadata)
