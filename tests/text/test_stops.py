from hypothesis import given
from hypothesis import strategies as st

from adafuse.text.stops import StopStrings


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
