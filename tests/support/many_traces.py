"""A large trace, made from few distinct rows: what pages must cope with."""

import random
from pathlib import Path

import pyarrow as pa

from adafuse.metrics.score import write_outcomes
from adafuse.metrics.scorer import Outcome
from adafuse.storage.parquet import write_arrow
from adafuse.storage.traces import RESULT_FIELDS

_WORDS = ("the", "lake", "stands near", "a", "quiet", "tower", "nobody painted", "in", "years")


def large_trace(path: Path, rows: int, rounds: int, seed: int) -> list[str]:
    """Write a trace of `rows` examples of `rounds` rounds by two models; return the ids."""
    rng, distinct = random.Random(seed), 500
    fields = pa.schema([pa.field("id", pa.string()), *RESULT_FIELDS])
    block = pa.Table.from_pylist([_row(rng, rounds) for _ in range(distinct)], schema=fields)
    table = pa.concat_tables([block] * -(-rows // distinct)).slice(0, rows)
    ids = [f"row-{number:06d}" for number in range(rows)]
    write_arrow(path, table.set_column(0, "id", pa.array(ids)), {"shards": []})
    return ids


def large_outcomes(path: Path, ids: list[str], seed: int) -> None:
    """Score the rows, right and wrong at random."""
    rng = random.Random(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_outcomes(path, [Outcome(name, "", ("",), float(rng.random() < 0.6)) for name in ids], {})


def _row(rng: random.Random, rounds: int) -> dict[str, object]:
    taken = [_round(rng) for _ in range(rounds)]
    text = "".join(each["candidates"][each["selected"]]["text"] for each in taken)
    return {
        "id": "", "text": text, "stop_reason": "eos", "error": None, "traceback": None,
        "seconds": rng.random(), "tokens": [30, 31], "prompt_tokens": [9, 9],
        "forwards": [40, 41], "rounds": taken,
    }  # fmt: skip


def _round(rng: random.Random) -> dict[str, object]:
    candidates = [
        {
            "text": " " + " ".join(rng.choices(_WORDS, k=rng.randint(1, 3))),
            "ends": False,
            "nll": [rng.expovariate(1), rng.expovariate(1)],
            "fused": rng.expovariate(1),
            "proposers": [number % 2],
        }
        for number in range(rng.randint(1, 4))
    ]
    selected = min(range(len(candidates)), key=lambda at: candidates[at]["fused"])
    margins = [[rng.random(), rng.random()], [rng.random()]]
    return {
        "candidates": candidates,
        "selected": selected,
        "words": 2,
        "margins": margins,
        "weights": [],
    }
