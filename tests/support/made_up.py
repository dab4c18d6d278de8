"""Results that nobody decoded, each with something that pages must show rightly."""

import math
from dataclasses import replace

from adafuse.records.result import Candidate, Result, Round

COUNT = 45
EVIL = " <script>document.title = 'owned'</script><img src=x onerror=alert(1)>"
THOUGHTS = "<think>\nA bird? 🦆</think>\n"
ODD = " naïve 学校 🦆"


def identifiers() -> list[str]:
    return [f"q-{number:02d}" for number in range(COUNT)]


PROMPTS = [f"Question {number}: who is <b>it</b>?\nAnswer:" for number in range(COUNT)]
ANSWERS = [("the duck", "a duck") for _ in range(COUNT)]

RIGHT = {
    "fused": [float(number % 3 != 0) for number in range(COUNT)],
    "single": [float(number % 2 == 0) for number in range(COUNT)],
}
"""Fused is wrong on every third row, single on every second."""


def _round(texts: list[str], selected: int = 0, ends: bool = False) -> Round:
    candidates = tuple(
        Candidate(
            text, ends, (0, 1) if len(texts) == 1 else (at % 2,), (0.25 + at, 0.5 + at), 0.375 + at
        )
        for at, text in enumerate(texts)
    )
    return Round(candidates, selected, len(texts[selected].split()), ((0.9, 0.3), (0.5,)))


def _result(
    text: str, rounds: list[Round], reason: str = "stop", error: str | None = None
) -> Result:
    traceback = "Traceback: line 1" if error else None
    return Result(text, reason, tuple(rounds), (9, 8), (4, 4), (12, 11), 0.5, error, traceback)


def _fused(number: int) -> Result:
    if number == 3:
        return _result(EVIL, [_round([EVIL, " other"])])
    if number == 4:
        return _result(" the duck", [_round([" the", " a duck"]), _round([" duck\nNext"])])
    if number == 5:
        infinite = Candidate(" x", False, (0,), (math.inf, math.inf), math.inf)
        last = Round((infinite,), None, 0, ((), ()))
        return _result(" the", [_round([" the"]), last], "error", "no candidate has a finite NLL")
    if number == 6:
        return _result(ODD, [replace(_round([ODD, " other"]), weights=(0.25, 0.75))])
    if number == 7:  # an answer that a last round took in place of the fused text
        return _result(" whole answer", [_round([" the"]), _round([" the", " whole answer"], 1)])
    if number == 8:  # of a model that thinks; one span holds the end of that, and some answer
        begun, *rest = "<think>\nA bird?", " 🦆</think>\nduck", " 8"
        rounds = [_round([begun]), _round([rest[0], " cat"]), _round([rest[1]], ends=True)]
        return replace(_result(f"{THOUGHTS}duck 8", rounds, "eos"), thoughts=len(THOUGHTS))
    if number == 10:  # nothing but thoughts
        return replace(_result("<think>", [_round(["<think>"])]), thoughts=7)
    return _result(
        f" duck {number}", [_round([" duck", " goose"]), _round([f" {number}"], ends=True)], "eos"
    )


FUSED = [_fused(number) for number in range(COUNT)]
SINGLE = [_result(" goose", [_round([" goose"])], "length") for _ in range(COUNT)]
