"""Comparing what two ways of decoding gave."""

from collections.abc import Sequence
from dataclasses import replace

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


def assert_same_up_to_near_ties(
    left: Sequence[Result], right: Sequence[Result], *, nll: float
) -> int:
    """As `assert_same`, but texts may differ from a near tie on; returns how many do.

    In a near tie, the two chosen candidates' scores differ by so little that errors of `nll` in
    both can have exchanged them.
    """
    tied = 0
    for one, other in zip(left, right, strict=True):
        chosen = zip(_choices(one), _choices(other), strict=False)
        parted = next((n for n, (taken, plain) in enumerate(chosen) if taken != plain), None)
        if parted is not None:
            taken, plain = one.rounds[parted], other.rounds[parted]
            scores = [plain.candidates[each.selected].fused for each in (taken, plain)]
            assert scores[0] == pytest.approx(scores[1], rel=0, abs=2 * nll), (one, other)
            tied += 1
            agreed = replace(taken, selected=plain.selected)
            one = replace(other, rounds=(*one.rounds[:parted], agreed))
            other = replace(other, rounds=other.rounds[: parted + 1])
        assert_same([one], [other], nll=nll)
    return tied


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
