"""Scores with their outcomes, as the scoring step writes them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from adafuse.comparison.bootstrap import bleu_counts, pooled_bleu
from adafuse.comparison.outcomes import Scored
from adafuse.workflow.traces import write_table

COLUMNS = [
    pa.field("id", pa.string()),
    pa.field("value", pa.float64()),
    pa.field("hypothesis", pa.string()),
    pa.field("references", pa.list_(pa.string())),
]


def accuracy(run: str, values: Sequence[float], **changes: Any) -> Scored:
    """A score of 1s and 0s."""
    size = len(values)
    given: dict[str, Any] = {
        "benchmark": "qa",
        "run": run,
        "protocol": "strict",
        "metric": "exact_match",
        "value": 100 * sum(values) / size,
        "tokenize": None,
        "ids": tuple(f"r{number}" for number in range(size)),
        "values": tuple(values),
        "hypotheses": ("x",) * size,
        "references": (("x",),) * size,
    }
    return Scored(**{**given, **changes})


def translation(
    run: str, texts: Sequence[str], references: Sequence[str], **changes: Any
) -> Scored:
    """A BLEU score."""
    refs = tuple((text,) for text in references)
    drop = changes.get("protocol") == "published"
    value = pooled_bleu(bleu_counts(texts, refs, "13a", drop_empty=drop))
    given: dict[str, Any] = {
        "benchmark": "mt",
        "run": run,
        "protocol": "strict",
        "metric": "bleu_13a",
        "value": value,
        "tokenize": "13a",
        "ids": tuple(f"r{number}" for number in range(len(texts))),
        "values": (0.0,) * len(texts),
        "hypotheses": tuple(texts),
        "references": refs,
    }
    return Scored(**{**given, **changes})


@pytest.fixture
def store(tmp_path: Path) -> Callable[..., Path]:
    """Write a score and its outcomes; `changes` go into the JSON."""

    def write(scored: Scored, **changes: Any) -> Path:
        folder = tmp_path / "scores" / scored.protocol / scored.benchmark
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{scored.run}.json"
        estimate = {"value": scored.value, "low": 0.0, "high": 100.0}
        values = {
            "benchmark": scored.benchmark,
            "run": scored.run,
            "protocol": scored.protocol,
            "n": len(scored.ids),
            "metrics": {"other": estimate | {"value": 1.0}, scored.metric: estimate},
            "primary": scored.metric,
            "details": {},
        } | changes
        path.write_text(json.dumps(values))
        columns = zip(scored.ids, scored.values, scored.hypotheses, scored.references, strict=True)
        rows = [
            {"id": id_, "value": value, "hypothesis": text, "references": list(refs)}
            for id_, value, text, refs in columns
        ]
        write_table(path.with_suffix(".outcomes.parquet"), COLUMNS, rows, {})
        return path

    return write
