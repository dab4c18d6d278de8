"""Strict exact match."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.metrics.registry import SCORERS
from adafuse.metrics.scorer import Prediction
from adafuse.metrics.short_answers import (
    exact_match,
    first_line,
    nq_open,
    squad,
    token_f1,
    triviaqa,
)

SQUAD = SCORERS["squad"]


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Eiffel Tower!", "eiffel tower"),
        ("an A-team, a plan", "ateam plan"),
        ("theatre", "theatre"),
        ("U.S.A.", "usa"),
        ("Sunset Blvd.\t", "sunset blvd"),
        ("---", ""),
    ],
)
def test_squad_lowers_and_drops_punctuation_articles_and_space(text: str, normal: str) -> None:
    assert squad(text) == normal


@given(st.text(), st.sampled_from([squad, triviaqa]))
def test_normal_text_has_no_ascii_punctuation_and_single_spaces(text: str, normalise) -> None:
    normal = normalise(text)
    assert not set(normal) & set(string.punctuation)
    assert normal == " ".join(normal.split())


@given(st.text(alphabet="theTHEan aA.,-_'x \t\u00a0"))
def test_normal_text_holds_no_article_as_a_word(text: str) -> None:
    assert not set(squad(text).split()) & {"a", "an", "the"}


@given(st.text())
def test_case_plays_no_part_for_ascii(text: str) -> None:
    if text.isascii():
        assert squad(text.upper()) == squad(text.lower())


def test_nq_open_does_not_tell_composed_from_decomposed() -> None:
    assert nq_open("Beyonc\u00e9") == nq_open("Beyonce\u0301")
    assert squad("Beyonc\u00e9") != squad("Beyonce\u0301")


def test_triviaqa_puts_spaces_for_punctuation_underscores_and_quotes() -> None:
    assert triviaqa("Jean-Luc_Picard") == "jean luc picard"
    assert triviaqa("\u2018Rock\u2019n\u2019roll") == "rock n roll"


def test_the_prediction_is_the_first_line_that_is_not_blank() -> None:
    assert first_line("  Paris \nQuestion: x") == "Paris"
    assert first_line("one\u2028line") == "one\u2028line"
    assert exact_match(" Paris.\nLondon", ["paris"], squad)
    assert not exact_match("\nLondon\nParis", ["paris"], squad)
    assert first_line(" \n\t\n") == first_line("\ufeff\r\n\u200b") == ""


@pytest.mark.parametrize(
    "before",
    ["\n", "\n\n  ", "\r\n", "\r", " \n\t\n", "\u2028", "\x0b", "\x0c", "\x85", "\ufeff",
     "\u200b\n", "\ufeff\n\u200b", "\u00a0\n", "\x00"],
)  # fmt: skip
@pytest.mark.parametrize("normalise", [squad, nq_open, triviaqa])
def test_what_cannot_be_seen_before_or_after_an_answer_costs_nothing(before, normalise) -> None:
    for text in (f"{before}Paris", f"{before}Paris{before}", f"{before}Paris\nQuestion: who?"):
        assert exact_match(text, ["paris"], normalise), repr(text)
        assert token_f1(text, ["paris"], normalise) == 1
    assert exact_match("Paris", [f"Paris{before}"], normalise)


def test_the_outcome_of_a_short_answer_is_the_prediction() -> None:
    (outcome,) = SQUAD.score(
        "strict", [Prediction("a", "\nParis\nQuestion: x", ("Paris",))]
    ).outcomes
    assert (outcome.text, outcome.value) == ("Paris", 1)


def test_the_best_answer_counts() -> None:
    assert exact_match("Paris", ["London", "The Paris"], squad)


@pytest.mark.parametrize("text", ["", "  ", "the", "...", "\n"])
def test_an_empty_prediction_is_wrong_even_for_a_gold_that_normalises_to_nothing(text) -> None:
    assert not exact_match(text, ["---", "."], squad)
