from hypothesis import given
from hypothesis import strategies as st

from adafuse.decoding.words import StopStrings


def test_the_text_is_cut_before_the_first_stop_string():
    stops = StopStrings(["Question:", "\n\n"])
    assert stops.cut("8\n\nQuestion: b") == "8"
    assert stops.cut("8 Question: a\n\n") == "8 "
    assert stops.cut("8") == "8"


@given(st.text(), st.lists(st.text(min_size=1), max_size=3))
def test_a_cut_text_holds_no_stop_string_and_is_a_prefix(text, strings):
    stops = StopStrings(strings)
    cut = stops.cut(text)
    assert text.startswith(cut)
    assert not stops.within(cut)
    assert stops.within(text) == (cut != text)


def test_the_longest_beginning_of_a_stop_string_at_the_end_is_not_settled():
    stops = StopStrings(["\n\n", "Question:", "on"])
    assert stops.settled("8 Question") == "8 "
    assert stops.settled("8 Quest.") == "8 Quest."
    assert stops.settled("8\n") == "8"
    assert stops.settled("") == ""


@given(st.text("abc", max_size=20), st.lists(st.text("abc", min_size=1, max_size=5), max_size=3))
def test_what_is_settled_stands_whatever_follows(text, strings):
    stops = StopStrings(strings)
    shown = ""
    for end in range(len(text) + 1):
        if stops.within(text[:end]):
            break
        settled = stops.settled(text[:end])
        assert settled.startswith(shown)
        shown = settled
    assert stops.cut(text).startswith(shown)
