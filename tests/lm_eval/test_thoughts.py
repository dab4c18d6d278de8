"""The harness scores what follows thoughts."""

import pytest

from adafuse.errors import UserError
from adafuse.lm_eval.requests import write_chat
from adafuse.storage.parquet import read_rows
from tests.support.thinking import (
    ANSWER,
    CHANNELS,
    CHAT,
    OFF,
    SWITCHED,
    THOUGHTS,
    scripted,
    with_template,
)

pytest.importorskip("lm_eval", reason="needs adafuse[lm-eval]")

from lm_eval.api.instance import Instance

from adafuse.lm_eval.model import AdaFuseLM

HISTORY = write_chat(
    [{"role": turn.role, "content": turn.content} for turn in CHAT.turns], continues=False
)


def generation(tokens):
    asked = (HISTORY, {"until": ["\n"], "max_gen_toks": tokens})
    return Instance("generate_until", {}, asked, 0, ("toy", tokens, 1))


def test_only_answers_are_given_to_the_harness_and_traces_keep_the_thoughts(tmp_path, monkeypatch):
    models = [with_template(name, tmp_path / name, SWITCHED) for name in ("qwen3", "llama")]
    lm = AdaFuseLM(models=models, device="cpu", trace=str(tmp_path / "out.parquet"))
    for model in lm._ensemble.models:
        scripted(model, CHAT, f"{THOUGHTS}{ANSWER}\nSo it is.", monkeypatch)
    assert lm.generate_until([generation(200), generation(6)]) == [ANSWER, ""]
    whole, cut = read_rows(tmp_path / "out.parquet")
    assert (whole["text"], whole["thoughts"]) == (THOUGHTS + ANSWER, len(THOUGHTS))
    assert (cut["stop_reason"], cut["thoughts"]) == ("length", len(cut["text"]))


@pytest.mark.parametrize(
    ("template", "fix"),
    [
        (SWITCHED, r"set chat_template_kwargs to \{enable_thinking: false\} for "),
        (CHANNELS, "take requests that generate a text"),
    ],
)
def test_answers_are_not_scored_where_a_model_would_think_first(tmp_path, template, fix):
    path = with_template("llama", tmp_path / "llama", template)
    lm = AdaFuseLM(models=[path], device="cpu")
    choice = Instance("loglikelihood", {}, (HISTORY, " Paila"), 0, ("toy", 0, 1))
    with pytest.raises(UserError, match=f"thinks before it answers, .* says little; {fix}"):
        lm.loglikelihood([choice])
    plain = Instance("loglikelihood", {}, ("Who?", " Paila"), 0, ("toy", 0, 1))
    assert lm.loglikelihood([plain])[0][0] < 0
    if template == SWITCHED:
        lm = AdaFuseLM(models=[path], device="cpu", chat_template_kwargs=OFF)
        assert lm.loglikelihood([choice])[0][0] < 0
