"""A row of a trace as short lists, in the order that assets/model.js reads."""

from typing import Any

from adafuse.explorer.packed import number


def compact_row(row: dict[str, Any]) -> list[Any]:
    """Return everything but the text, which lies apart: it is searched."""
    return [
        [_round(each) for each in row["rounds"]],
        row["tokens"],
        row["prompt_tokens"],
        row["forwards"],
        number(row["seconds"]),
        row["error"],
        row["traceback"],
        row.get("taken_from"),
    ]


def _round(row: dict[str, Any]) -> list[Any]:
    candidates = [_candidate(each) for each in row["candidates"]]
    margins = [[number(value, 6) for value in values] for values in row["margins"]]
    return [candidates, row["selected"], row["words"], margins]


def _candidate(row: dict[str, Any]) -> list[Any]:
    nll = [number(value) for value in row["nll"]]
    return [row["text"], int(row["ends"]), row["proposers"], nll, number(row["fused"])]
