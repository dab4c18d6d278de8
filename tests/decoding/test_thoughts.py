"""What models think is in the text, and no part of the answer."""

import pytest

from adafuse.ensemble import Ensemble
from adafuse.methods import METHODS
from tests.conftest import toy_path
from tests.support.thinking import (
    ANALYSIS,
    ANSWER,
    CHANNELS,
    CHAT,
    FINAL,
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


BLENDER = {"ranker": toy_path("pair_ranker"), "fuser": toy_path("gen_fuser")}


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("adafuse", {}),
        ("cool_fusion", {"rerank": True}),
        ("llm_blender", {**BLENDER, "rank_only": True}),
        ("rerank", {}),
        ("single", {}),
        ("self_consistency", {"k": 2}),
    ],
)
def test_stop_strings_apply_to_the_answer(thinkers, method, options):
    given = thinkers if METHODS[method].models != (1, 1) else Ensemble(thinkers.models[:1])
    (result,) = given.generate([CHAT], method=method, stop=["\n"], **options)
    assert result.error is None
    assert (result.text, result.stop_reason) == (thinkers.thoughts + ANSWER, "stop")
    assert (result.thoughts, result.answer) == (len(thinkers.thoughts), ANSWER)


def test_thoughts_that_a_limit_cuts_leave_no_answer(thinkers):
    (result,) = thinkers.generate([CHAT], max_new_tokens=6)
    assert result.stop_reason == "length"
    assert thinkers.thoughts.startswith(result.text)
    assert (result.thoughts, result.answer) == (len(result.text), "")


def test_what_the_fuser_writes_has_no_thoughts(thinkers):
    (result,) = thinkers.generate([CHAT], method="llm_blender", stop=["\n"], **BLENDER)
    assert (result.error, result.thoughts, result.answer) == (None, None, result.text)
    assert result.rounds[0].candidates[0].text == thinkers.thoughts + ANSWER


@pytest.mark.parametrize(("method", "options"), [("rerank", {}), ("cool_fusion", {"rerank": True})])
def test_whole_answers_are_ranked_without_their_thoughts(thinkers, method, options):
    def decode(**limits):
        (result,) = thinkers.generate([CHAT], method=method, **options, **limits)
        assert result.error is None
        return result

    (whole,) = decode().rounds[-1].candidates
    assert whole.proposers == (0, 1)
    (only,) = thinkers.generate([CHAT], method="rerank")
    assert whole.nll == pytest.approx(only.rounds[0].candidates[0].nll, rel=0.2)
    cut = decode(max_new_tokens=6)
    assert (cut.stop_reason, cut.answer) == ("length", "")
    if options:  # nothing is ranked
        (fused,) = thinkers.generate([CHAT], method=method, max_new_tokens=6)
        assert len(cut.rounds) == len(fused.rounds)


def test_a_text_is_streamed_as_it_is(thinkers):
    stream = thinkers.stream_text(CHAT, stop=["\n"])
    assert "".join(stream) == thinkers.thoughts + ANSWER
    assert stream.result.answer == ANSWER


@pytest.mark.parametrize("method", ["adafuse", "bytewise"])
def test_an_answer_is_what_the_final_channel_holds(tmp_path, monkeypatch, method):
    models = [with_template(name, tmp_path / name, CHANNELS) for name in ("qwen3", "llama")]
    ensemble = Ensemble.from_pretrained(models, device="cpu")
    said = f"{ANALYSIS}Rustan, no.\nOr yes?{FINAL}"
    for model in ensemble.models:
        scripted(model, CHAT, f"{said}{ANSWER}", monkeypatch)
    (result,) = ensemble.generate([CHAT], method=method, stop=["\n"])
    assert (result.error, result.text, result.stop_reason) == (None, said + ANSWER, "eos")
    assert (result.thoughts, result.answer) == (len(said), ANSWER)


def test_without_thoughts_all_of_a_text_is_the_answer(tmp_path, monkeypatch):
    path = with_template("qwen3", tmp_path / "qwen3", SWITCHED)
    ensemble = Ensemble.from_pretrained([path], device="cpu", chat_template_kwargs=OFF)
    scripted(ensemble.models[0], CHAT, THOUGHTS + ANSWER, monkeypatch)
    (result,) = ensemble.generate([CHAT], stop=["\n"])
    assert (result.thoughts, result.answer) == (None, "<think>")
