"""Comparing what two ways of decoding gave."""

from collections.abc import Sequence

from adafuse.records import Result


def assert_same(left: Sequence[Result], right: Sequence[Result], *, nll: float = 1e-4) -> None:
    """Same texts, stop reasons, candidates and choices; NLLs equal to `nll`, relatively above 1."""
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        assert one.text == other.text
        assert one.stop_reason == other.stop_reason
        assert _choices(one) == _choices(other)
        differences = [
            abs(a - b) / max(1.0, abs(a))
            for a, b in zip(_numbers(one), _numbers(other), strict=True)
            if a != b
        ]
        assert max(differences, default=0.0) <= nll


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
