"""Strict exact match."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.metrics.short_answers import exact_match, first_line, nq_open, squad, triviaqa


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


def test_the_prediction_is_the_first_line_stripped() -> None:
    assert first_line("  Paris \nQuestion: x") == "Paris"
    assert first_line("one\u2028line") == "one\u2028line"
    assert exact_match(" Paris.\nLondon", ["paris"], squad)
    assert not exact_match("\nParis", ["paris"], squad)


def test_the_best_answer_counts() -> None:
    assert exact_match("Paris", ["London", "The Paris"], squad)


@pytest.mark.parametrize("text", ["", "  ", "the", "...", "\n"])
def test_an_empty_prediction_is_wrong_even_for_a_gold_that_normalises_to_nothing(text) -> None:
    assert not exact_match(text, ["---", "."], squad)
