"""The text of one prompt as it is committed."""

import gc
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adafuse import Ensemble, UserError
from adafuse.engine import choice
from adafuse.methods import METHODS
from tests.conftest import toy_path
from tests.methods.test_engines_agree import PROMPTS
from tests.support.tiny import random_model

OPTIONS = {
    "cool_fusion": [{}, {"rerank": True}, {"segments": "shortest"}],
    "adafuse": [{}, {"branching": 3}],
    "beam_scaling": [{"width": 3}],
    "specfuse": [{}, {"sampling": True}],
    "unite": [{}, {"commit": "first_token"}],
    "llm_blender": [
        {"ranker": toy_path("pair_ranker"), "fuser": toy_path("gen_fuser"), "rank_only": only}
        for only in (True, False)
    ],
}
CASES = [(name, options) for name in METHODS for options in OPTIONS.get(name, [{}])]
TEXTS: dict[str, str] = {}
"""What is written after a prompt, without a stop string."""
STOPS = [[], ["\n"], ["er", "ing the", " a"], ["Answer", "\n\n", "e q"], ["🙂", "ä"]]


@pytest.mark.parametrize(("method", "options"), CASES)
def test_the_spans_together_are_the_text_of_generate(pair, method, options):
    ensemble = type(pair)(pair.models[:1], (1.0,)) if METHODS[method].models == (1, 1) else pair
    for number in (0, 1 + CASES.index((method, options)) % 4):  # each method meets one of the four
        chosen = {"method": method, "max_new_tokens": 12, "stop": STOPS[number], **options}
        prompt = PROMPTS[number]
        stream = ensemble.stream_text(prompt, **chosen)
        assert stream.result is None
        spans = list(stream)
        (expected,) = ensemble.generate([prompt], batch_size=1, **chosen)
        assert "".join(spans) == expected.text
        assert all(spans)
        assert stream.result.text == expected.text
        assert stream.result.rounds == expected.rounds


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_stop_strings_leave_the_text_of_generate(random_pair, data):
    prompt = data.draw(st.sampled_from(PROMPTS[:5]))
    if prompt not in TEXTS:
        TEXTS[prompt] = random_pair.generate([prompt], max_new_tokens=10, batch_size=1)[0].text
    text = TEXTS[prompt]
    places = st.integers(0, max(0, len(text) - 1))
    pieces = st.builds(lambda at, size, end: text[at : at + size] + end, places,
                       st.integers(1, 6), st.sampled_from(["", "", "~", "x"]))  # fmt: skip
    stop = data.draw(st.lists(pieces.filter(bool), max_size=3))
    expected = random_pair.generate([prompt], max_new_tokens=10, stop=stop, batch_size=1)[0]
    stream = random_pair.stream_text(prompt, max_new_tokens=10, stop=stop)
    assert "".join(stream) == expected.text


def test_spans_come_before_the_end_of_the_text(pair):
    stream = pair.stream_text(PROMPTS[0], max_new_tokens=30, tau=1.0)
    first = next(stream)
    assert stream.result is None
    assert (first + "".join(stream)) == stream.result.text
    assert len(first) < len(stream.result.text)


def test_what_may_be_replaced_comes_when_it_is_done(pair):
    for method, options in (("rerank", {}), ("cool_fusion", {"rerank": True})):
        spans = list(pair.stream_text(PROMPTS[0], method=method, max_new_tokens=12, **options))
        assert len(spans) <= 1


def test_the_beginning_of_a_stop_string_is_held_back(pair):
    first, second, *rest = pair.stream_text(PROMPTS[0], max_new_tokens=20)
    stop = first[-2:] + second[:3] + "never"
    spans = list(pair.stream_text(PROMPTS[0], max_new_tokens=20, stop=[stop]))
    assert spans == [first[:-2], first[-2:] + second, *rest]


def test_an_example_that_fails_says_why(tmp_path):
    path = random_model(toy_path("llama"), tmp_path / "small", seed=0, context=40)
    stream = Ensemble.from_pretrained([path], device="cpu").stream_text("word " * 60)
    assert list(stream) == []
    assert stream.result.stop_reason == "error"


@pytest.mark.parametrize("method", ["adafuse", "bytewise", "unite"])
def test_a_stream_that_is_closed_gives_back_its_engines(pair, monkeypatch, method):
    engines = weakref.WeakSet()

    def engine_for(*given, **settings):
        engines.add(engine := choice.engine_for(*given, **settings))
        return engine

    monkeypatch.setattr("adafuse.decoding.run.engine_for", engine_for)
    with pair.stream_text(PROMPTS[0], method=method, max_new_tokens=30) as stream:
        assert next(stream)
        assert len(engines) == 2
    gc.collect()
    assert not engines
    assert list(stream) == []
    assert stream.result is None


def test_settings_are_refused_before_the_first_span(pair):
    with pytest.raises(UserError, match=r"unknown method 'adafus'.*did you mean 'adafuse'"):
        pair.stream_text("a", method="adafus")
