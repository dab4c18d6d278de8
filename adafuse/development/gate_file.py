"""The file of a gate that was fitted: the rule that decoding reads, with where it comes from."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from adafuse.benchmarks.prompts import question_key
from adafuse.decoding.gate import Gate, read_gate
from adafuse.errors import UserError
from adafuse.options import Section
from adafuse.records.result import Prompt, as_text
from adafuse.storage.files import write_text
from adafuse.storage.journal import text_digest


class Bin(Section):
    """Rounds in which the gate's choice has about the same probability.

    `chance` is the mean of that, `right` the share of the rounds in which no other candidate was
    worth more.
    """

    chance: float
    right: float
    rounds: int


SHARES = "percent of the largest score of a row"
"""The unit of gains for benchmarks whose points differ: each row's score over the largest one."""


class Provenance(Section):
    """Where a gate comes from, and what it does for rows that it was not fitted on.

    `gain` is what it adds to their scores, in `unit`, by the penalty on its coefficients, if one
    round of a row at a time is decided otherwise; `importance` what of that is lost without each
    feature; `calibration` has its bins, and those of `mean_nll`. `prompts` are the `prompt_hashes`
    of the rows, of their prompts and of the questions in these. Older files have no `prompts`, or
    none of questions; those without `unit` have shares.
    """

    objective: Literal["reward", "likelihood"]
    method: str
    options: dict[str, Any]
    benchmarks: tuple[str, ...]
    rows: int
    rounds: int
    penalty: float | None
    unit: str = SHARES
    gain: dict[str, float]
    importance: dict[str, float]
    calibration: dict[str, tuple[Bin, ...]]
    versions: dict[str, Any]
    prompts: str = ""


class FittedGate(Gate):
    """A gate with its provenance."""

    fitted: Provenance


def prompt_hashes(prompts: Iterable[Prompt]) -> str:
    """Return 12 hexadecimal digits for each prompt, the same for copies of it (`question_key`)."""
    return " ".join(text_digest(question_key(as_text(prompt)))[:12] for prompt in prompts)


def check_unseen(
    path: str, name: str, rows: Iterable[Iterable[Prompt]], user: str, use: str
) -> None:
    """Refuse the gate of a file for rows that it was fitted on.

    Args:
        path: of the gate; one that was written by hand is taken.
        name: of the rows' benchmark or file.
        rows: the prompt of each, and its question alone, which is the same in other templates.
        user: what the message begins with.
        use: what the rows are for, as a verb.

    Raises:
        UserError: the gate was fitted on some of the rows.
    """
    if read_gate(path).fitted is None:
        return
    fitted = read_gate(path, FittedGate).fitted
    seen, hashes = {*fitted.prompts.split()}, [prompt_hashes(row).split() for row in rows]
    shared = sum(not seen.isdisjoint(each) for each in hashes)
    if shared or (not seen and name in fitted.benchmarks):
        which = f"{shared} of the {len(hashes)} rows" if seen else "rows"
        raise UserError(
            f"{user}: gate {path!r} was fitted on {which} {name!r}, whose scores it raises;"
            f" {use} on other rows"
        )


def write_gate(path: Path, gate: Gate) -> None:
    """Write a gate as JSON."""
    write_text(path, json.dumps(gate.model_dump(mode="json"), indent=2) + "\n")
