from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from adafuse.decoding.words import StopAfter, StopStrings
from tests.support.scripted import ScriptedModel, decode


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


def test_a_stop_string_of_whitespace_needs_text_before_it():
    stops = StopStrings(["\n"])
    assert not stops.within(" \n\n")
    assert stops.cut("\n\nParis\nQuestion") == "\n\nParis"
    assert replace(stops, before="\n").through("Paris\n\n") == "Paris\n"
    assert replace(stops, before="Paris").through("\n\nQuestion") == "\n"


def test_a_blank_line_ends_an_answer_only_after_the_answer():
    stops = StopStrings(["Question:", StopAfter(string="\n\n", after="answer is")])
    assert stops.cut("Step one.\n\nThe answer is 5\n\nThe end") == "Step one.\n\nThe answer is 5"
    assert stops.cut("Step.\n\nQuestion: 2") == "Step.\n\n"
    assert not stops.within("Step one.\n\nStep two.\n\n")


ANY_STOPS = st.lists(
    st.text("ab \n", min_size=1, max_size=3)
    | st.builds(StopAfter, string=st.text("ab\n", min_size=1), after=st.text("ab\n", min_size=1)),
    max_size=3,
)


@given(st.text("ab \n", max_size=12), st.data(), ANY_STOPS)
def test_what_goes_through_ends_with_the_first_stop_string(text, data, strings):
    stops = StopStrings(strings)
    before = text[: data.draw(st.integers(0, len(text)))]
    if stops.within(before):
        return
    through = replace(stops, before=before).through(text.removeprefix(before))
    assert text.startswith(before + through)
    assert stops.cut(before + through) == stops.cut(text)
    if before + through != text:
        names = [stop if isinstance(stop, str) else stop.string for stop in strings]
        assert (before + through).endswith(tuple(names))


def test_a_candidate_is_cut_behind_its_first_stop_string_before_it_is_pooled():
    tokens = [" Paris", "\n", "\n\nQuestion", "<end>"]

    def writes(name, end):
        return ScriptedModel(name, tokens, lambda ids: end if ids else (0.97, 0.01, 0.01, 0.01))

    models = [writes("one", (0.01, 0.97, 0.01, 0.01)), writes("other", (0.01, 0.01, 0.97, 0.01))]
    example = decode("adafuse", models, limits={"stop": ("\n",)})
    (candidate,) = example.rounds[0].candidates
    assert (candidate.text, candidate.proposers) == (" Paris\n", (0, 1))
    assert (example.text, example.reason) == (" Paris", "stop")


def test_a_model_that_begins_with_the_stop_string_answers_on_the_next_line():
    tokens = ["\n", "Paris", "<end>"]
    script = {(): (0.9, 0.05, 0.05), (0,): (0.05, 0.9, 0.05), (0, 1): (0.9, 0.05, 0.05)}
    model = ScriptedModel("one", tokens, lambda ids: script[ids])
    example = decode("single", [model], limits={"stop": ("\n",)})
    assert (example.text, example.reason) == ("\nParis", "stop")
