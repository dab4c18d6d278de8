"""Comparing what two ways of decoding gave."""

from collections.abc import Sequence

import pytest

from adafuse.records.result import Result


def assert_same(left: Sequence[Result], right: Sequence[Result], *, nll: float = 1e-4) -> None:
    """Same texts, stop reasons, candidates and choices; NLLs equal to `nll`, or nan in both.

    Numbers above 1, such as perplexities, may differ by that share of them.
    """
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        assert one.text == other.text
        assert one.stop_reason == other.stop_reason
        assert _choices(one) == _choices(other)
        assert _numbers(one) == pytest.approx(_numbers(other), rel=nll, abs=nll, nan_ok=True)


def _choices(result: Result) -> list[object]:
    return [
        (taken.selected, [(c.text, c.ends, c.proposers) for c in taken.candidates])
        for taken in result.rounds
    ]


def _numbers(result: Result) -> list[float]:
    return [
        value
        for taken in result.rounds
        for candidate in taken.candidates
        for value in (*candidate.nll, candidate.fused)
    ]
