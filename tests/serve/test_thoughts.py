"""Thoughts come apart from the answer of a chat."""

import pytest

from adafuse.ensemble import Ensemble
from tests.conftest import toy_path
from tests.serve.conftest import MESSAGES, streamed
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

REASONING = "Rustan, no.\nOr yes?"
CHATS = "/v1/chat/completions"


@pytest.fixture
def thinkers(tmp_path, monkeypatch):
    """Two models that think, and then answer in two lines."""
    models = [with_template(name, tmp_path / name, SWITCHED) for name in ("qwen3", "llama")]
    ensemble = Ensemble.from_pretrained(models, device="cpu")
    for model in ensemble.models:
        scripted(model, CHAT, f"{THOUGHTS}{ANSWER}\nSo it is.", monkeypatch)
    return ensemble


def test_thoughts_are_reasoning_content_whole_and_streamed(serving, thinkers):
    with serving(ensemble=thinkers, max_new_tokens=200) as client:
        body = {"messages": MESSAGES, "stop": ["\n"]}
        (choice,) = client.post(CHATS, json=body).json()["choices"]
        assert choice["message"]["content"] == ANSWER
        assert choice["message"]["reasoning_content"] == REASONING
        assert choice["finish_reason"] == "stop"
        pieces = [piece["choices"][0]["delta"] for piece in streamed(client, CHATS, **body)]
        assert len(pieces) > 4
        assert "".join(piece.get("content", "") for piece in pieces) == ANSWER
        assert "".join(piece.get("reasoning_content", "") for piece in pieces) == REASONING
        said = streamed(client, CHATS, rounds=True, **body)[-1]["choices"][0]["adafuse"]
        assert said["text"][: said["thoughts"]] == THOUGHTS


def test_thoughts_that_a_limit_cuts_leave_no_content(serving, thinkers):
    with serving(ensemble=thinkers) as client:
        body = {"messages": MESSAGES, "max_tokens": 8}
        (choice,) = client.post(CHATS, json=body).json()["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("", "length")
        assert REASONING.startswith(choice["message"]["reasoning_content"])


def test_log_probabilities_are_those_of_content(serving, thinkers):
    with serving(ensemble=thinkers, method="unite", max_new_tokens=200) as client:
        body = {"messages": MESSAGES, "stop": ["\n"], "logprobs": True}
        (choice,) = client.post(CHATS, json=body).json()["choices"]
        assert choice["message"]["reasoning_content"] == REASONING
        written = b"".join(bytes(token["bytes"]) for token in choice["logprobs"]["content"])
        assert written.decode().strip() == choice["message"]["content"] == ANSWER
        (choice,) = client.post(CHATS, json={**body, "max_tokens": 8}).json()["choices"]
        assert choice["message"]["content"] == "" and choice["logprobs"]["content"] == []


def test_what_a_fuser_writes_is_content(serving, tmp_path, monkeypatch):
    models = [with_template(name, tmp_path / name, OPENED) for name in ("qwen3", "llama")]
    options = {"ranker": toy_path("pair_ranker"), "fuser": toy_path("gen_fuser"), "fused_tokens": 8}
    body = {"messages": MESSAGES, "max_tokens": 60}
    ensemble = Ensemble.from_pretrained(models, device="cpu")
    for model in ensemble.models:
        scripted(model, CHAT, f"No.</think>{ANSWER}", monkeypatch)
    (result,) = ensemble.generate([CHAT], method="llm_blender", max_new_tokens=60, **options)
    with serving(ensemble=ensemble, method="llm_blender", options=options) as client:
        message = client.post(CHATS, json=body).json()["choices"][0]["message"]
        pieces = [piece["choices"][0]["delta"] for piece in streamed(client, CHATS, **body)]
    assert message["content"] and result.text.startswith(message["content"])
    assert message["content"] == "".join(piece.get("content", "") for piece in pieces)
    assert not any("reasoning_content" in part for part in (message, *pieces))


def test_models_of_which_one_thinks_are_refused_until_it_is_switched_off(serving, tmp_path):
    paths = [with_template("qwen3", tmp_path / "qwen3", SWITCHED), toy_path("llama")]
    with serving(ensemble=Ensemble.from_pretrained(paths, device="cpu")) as client:
        body = {"messages": MESSAGES, "max_tokens": 2}
        answer = client.post(CHATS, json=body)
        assert answer.status_code == 400
        assert "set chat_template_kwargs to {enable_thinking: false} for qwen3" in answer.text
        answer = client.post(CHATS, json={**body, "chat_template_kwargs": OFF})
        assert answer.status_code == 200
        assert "reasoning_content" not in answer.json()["choices"][0]["message"]


EFFORT = (
    "{% for turn in messages %}{{ turn.content }}{% endfor %}"
    "{% if reasoning_effort is defined %} Effort: {{ reasoning_effort }}{% endif %}"
)


def test_the_effort_that_a_request_names_reaches_the_templates_that_read_it(serving, monkeypatch):
    body = {"messages": MESSAGES, "reasoning_effort": "low", "max_tokens": 1}
    asked = []

    def ask(client, **changes):
        models = client.service.ensemble.models
        kind, made = type(models[0]), type(models[0]).prompt_ids
        monkeypatch.setattr(kind, "prompt_ids", lambda *a: asked.append(a) or made(*a))
        answer = client.post("/v1/chat/completions", json={**body, **changes})
        monkeypatch.undo()
        assert answer.status_code == 200, answer.text
        ends = [model.tokenizer.decode(model.prompt_ids(asked[-1][1]))[-12:] for model in models]
        return [end.partition("Effort: ")[2] for end in ends]

    with serving(templates=(None, EFFORT)) as client:
        assert ask(client) == ["", "low"]
        assert ask(client, chat_template_kwargs={"reasoning_effort": "high"}) == ["", "high"]
        assert ask(client, reasoning_effort=None) == ["", ""]
    with serving() as client:
        assert ask(client) == ["", ""]
