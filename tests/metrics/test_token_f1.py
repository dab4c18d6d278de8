"""Token F1 of the official SQuAD script."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.metrics.short_answers import squad, token_f1


@pytest.mark.parametrize(
    ("text", "answers", "f1"),
    [
        ("The Eiffel Tower", ["eiffel tower"], 1),
        ("tower", ["eiffel tower"], 2 / 3),
        ("eiffel tower paris france", ["eiffel tower"], 2 / 3),
        ("b b a b", ["b"], 0.5),  # the article goes; one of three tokens, of one
        ("london", ["paris", "london town"], 2 / 3),
        ("london", ["paris"], 0),
        ("", ["paris"], 0),
        ("...", ["."], 0),
        ("paris\nlondon", ["london"], 0),
    ],
)
def test_the_best_overlap_counts(text: str, answers: list[str], f1: float) -> None:
    assert token_f1(text, answers, squad) == pytest.approx(f1)


@given(st.text(), st.text())
def test_f1_is_a_share_and_does_not_depend_on_the_side(left: str, right: str) -> None:
    left, right = (text.replace("\n", " ").replace("\r", " ") for text in (left, right))
    f1 = token_f1(left, [right], squad)
    assert 0 <= f1 <= 1
    assert f1 == token_f1(right, [left], squad)
