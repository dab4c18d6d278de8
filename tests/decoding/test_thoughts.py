"""What models think is in the text, and no part of the answer."""

import pytest

from adafuse.ensemble import Ensemble
from tests.support.thinking import (
    ANSWER,
    CHAT,
    OFF,
    OPENED,
    SWITCHED,
    THOUGHTS,
    scripted,
    with_template,
)


@pytest.fixture(params=[SWITCHED, OPENED], ids=["switched", "opened"])
def thinkers(request, tmp_path, monkeypatch):
    """Two models that think, and then answer in two lines."""
    models = [with_template(name, tmp_path / name, request.param) for name in ("qwen3", "llama")]
    ensemble = Ensemble.from_pretrained(models, device="cpu")
    opened = request.param == OPENED
    text = THOUGHTS.removeprefix("<think>\n") if opened else THOUGHTS
    for model in ensemble.models:
        scripted(model, CHAT, f"{text}{ANSWER}\nSo it is.", monkeypatch)
    ensemble.thoughts = text
    return ensemble


@pytest.mark.parametrize("method", ["adafuse", "cool_fusion", "rerank", "single"])
def test_stop_strings_apply_to_the_answer(thinkers, method):
    given = thinkers if method != "single" else Ensemble(thinkers.models[:1])
    (result,) = given.generate([CHAT], method=method, stop=["\n"])
    assert result.error is None
    assert (result.text, result.stop_reason) == (thinkers.thoughts + ANSWER, "stop")
    assert (result.thoughts, result.answer) == (len(thinkers.thoughts), ANSWER)


def test_thoughts_that_a_limit_cuts_leave_no_answer(thinkers):
    (result,) = thinkers.generate([CHAT], max_new_tokens=6)
    assert result.stop_reason == "length"
    assert thinkers.thoughts.startswith(result.text)
    assert (result.thoughts, result.answer) == (len(result.text), "")


def test_a_text_is_streamed_as_it_is(thinkers):
    stream = thinkers.stream_text(CHAT, stop=["\n"])
    assert "".join(stream) == thinkers.thoughts + ANSWER
    assert stream.result.answer == ANSWER


def test_without_thoughts_all_of_a_text_is_the_answer(tmp_path, monkeypatch):
    path = with_template("qwen3", tmp_path / "qwen3", SWITCHED)
    ensemble = Ensemble.from_pretrained([path], device="cpu", chat_template_kwargs=OFF)
    scripted(ensemble.models[0], CHAT, THOUGHTS + ANSWER, monkeypatch)
    (result,) = ensemble.generate([CHAT], stop=["\n"])
    assert (result.thoughts, result.answer) == (None, "<think>")
