"""Data for pages that are opened from a folder: scripts that hand over compressed JSON.

A page without a server may not read files, but it may load scripts.
"""

import base64
import gzip
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_LEVEL = 6


def write_packed(folder: Path, key: str, value: object) -> None:
    """Write `value` to KEY.js in a folder, for `adafuse.load(KEY)` of assets/chunks.js.

    Args:
        folder: the page's folder for data.
        key: a path without its suffix; parts are safe file names.
        value: JSON-ready, without infinities (see `number`).
    """
    plain = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    packed = base64.b64encode(gzip.compress(plain, _LEVEL, mtime=0)).decode()
    path = folder / f"{key}.js"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'adafuse.receive({json.dumps(key)},"{packed}");\n', encoding="ascii")


def write_pieces(folder: Path, key: str, values: Sequence[Any], size: int) -> None:
    """Write values in pieces KEY-0, KEY-1, ... of `size`."""
    for first in range(0, len(values), size):
        write_packed(folder, f"{key}-{first // size}", values[first : first + size])


def number(value: float | None, digits: int = 4) -> float | str | None:
    """Return a number with few digits; what JSON cannot hold as text (`inf`, `nan`)."""
    if value is None:
        return None
    return round(value, digits) if math.isfinite(value) else str(value)
