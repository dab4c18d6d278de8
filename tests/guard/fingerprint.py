"""What the record keeps of a decoded text: short digests and sums, so that it stays small.

What is discrete is digested. Numbers never are, because machines differ in the last bits: they are
summed with weights, so that any one of them shows, and compared up to `TOLERANCE`.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

TOLERANCE = 1e-5


@dataclass(frozen=True)
class Decoded:
    """A decoded text in the names of the record, whatever the package calls its fields."""

    text: str
    stop: str
    counts: list[list[int]]
    """Per model: generated ids, ids of the prompt. Forward passes are costs, not results."""
    candidates: list[Any]
    """Per round and candidate: text, whether it ends the text, proposers."""
    choices: list[Any]
    """Per round: the number of the selected candidate, and the words committed."""
    nll: list[list[list[float]]]
    """Per round and candidate: one NLL per model, then the fused score."""
    margins: list[list[list[float]]]
    """Per round and model."""


def fingerprint(decoded: Decoded) -> dict[str, int | float | str]:
    """Return one value per field; numbers are the only floats."""
    numbers = [value for taken in decoded.nll for one in taken for value in one]
    margins = [value for taken in decoded.margins for one in taken for value in one]
    shapes = [[[len(one) for one in taken] for taken in decoded.margins], _nonfinite(numbers)]
    return {
        "text": digest(decoded.text, 2),
        "stop": decoded.stop,
        "counts": digest(decoded.counts, 1),
        "candidates": digest(decoded.candidates, 2),
        "choices": digest([decoded.choices, shapes], 1),
        "nll": projection(numbers),
        "margins": projection(margins),
    }


def digest(value: Any, size: int) -> int:
    """Return `size` bytes that say whether a value without floats is still the same."""
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return int.from_bytes(blake2b(written.encode(), digest_size=size).digest())


def projection(values: Sequence[float]) -> float:
    """Return a weighted sum that moves by about the rounding error of a single value.

    Large values, such as perplexities, are taken by their logarithm; infinite ones are left out.
    """
    squeezed = np.arcsinh([value if math.isfinite(value) else 0.0 for value in values])
    weights = np.cos(0.7 + 1.3 * np.arange(len(squeezed)) ** 2)
    return float(weights @ squeezed / math.sqrt(max(1, len(squeezed))))


def _nonfinite(values: Sequence[float]) -> list[list[int | str]]:
    return [[n, repr(value)] for n, value in enumerate(values) if not math.isfinite(value)]
