"""What a request may hold, and what is refused."""

import json

import pytest

from adafuse.records.result import Candidate, Result, Round
from adafuse.serve.protocol import Completion, Conversation, _tokens, read_request
from tests.serve.conftest import MESSAGES, PROMPT, completed


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({"temperature": 0.7}, 400, "request: temperature must be 0: decoding is greedy and gives"),
        ({"n": 2}, 400, "request: n must be 1: decoding is greedy and gives one text, not 2"),
        ({"prompt": [1, 2]}, 400, "must be a text or a list of texts: the models have different"),
        ({"prompt": " "}, 400, "prompt must hold some text"),
        ({"temprature": 0}, 400, "request: unknown field 'temprature'; known are: "),
        ({"max_tokens": 0}, 400, "request: max_tokens must be greater than or equal to 1, not 0"),
        (
            {"max_tokens": 2, "max_completion_tokens": 9},
            400,
            "request: max_tokens 2 and max_completion_tokens 9 contradict each other; give one",
        ),
        ({"max_tokens": 600}, 400, "and 600 more were asked for; there is room for 512"),
        ({"prompt": "word " * 700}, 400, "there is room for 512"),
        ({"method": "fuse"}, 400, "unknown method 'fuse'; known are: single, adafuse"),
        ({"method": "single"}, 400, "method single needs exactly 1 model, not 2"),
        ({"options": {"tau": -1}}, 400, "tau must be greater than or equal to 0, not -1"),
        ({"logprobs": 5}, 400, "logprobs must be 0 or 1: other likely tokens are not returned"),
        ({"logprobs": 1}, 400, "method 'adafuse' commits words, which have no common log-prob"),
        ({"model": "gpt-4"}, 404, "there is no model 'gpt-4'; 'adafuse' is served"),
        ({"echo": True}, 400, "echo must be left out"),
        ({"prompt": "x" * 70000}, 413, "the request is larger than 65536 bytes; send less"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_its_status(client, body, status, sentence):
    done = client.post("/v1/completions", json={"prompt": PROMPT, **body})
    assert done.status_code == status
    told = done.json()["error"]["message"]
    assert sentence in told
    assert "\n" not in told


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b"[" * 9000, b"\xff", b"null"])
def test_what_is_no_json_object_is_refused(client, body):
    done = client.post("/v1/completions", content=body)
    assert done.status_code == 400
    assert "the request is not" in done.json()["error"]["message"]


PARTS = [
    {"type": "image_url"}, {"type": "image_url", "text": "a"}, {"type": "text", "text": 5},
    {"type": "text", "text": ["a"]}, "a",
]  # fmt: skip


def test_tools_and_other_messages_are_refused(client):
    for change, sentence in (
        ({"tools": [{"type": "function"}]}, "tools must be left out"),
        ({"messages": []}, "messages must hold a message at least"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "unknown role 'tool'"),
        *(
            ({"messages": [{"role": "user", "content": [part]}]}, "part that is no")
            for part in PARTS
        ),
        ({"messages": [{**MESSAGES[0], "name": "Ann"}]}, "'name', which no model would read"),
        ({"messages": [{**MESSAGES[0], "tool_calls": [1]}]}, "'tool_calls', which no model would"),
        ({"stream_options": {"x": True}}, "unknown field of stream_options 'x'"),
        ({"stop": 5}, "stop must be a text or a list of texts"),
        ({"method": ""}, "unknown method ''"),
    ):
        done = client.post("/v1/chat/completions", json={"messages": MESSAGES, **change})
        assert (done.status_code, sentence in done.json()["error"]["message"]) == (400, True)


GREEDY = {
    "temperature": 0, "top_p": 1, "top_k": -1, "min_p": 0, "n": 1, "presence_penalty": 0.0,
    "frequency_penalty": 0, "repetition_penalty": 1.0, "logit_bias": {}, "seed": 7, "stop": None,
    "user": "u", "metadata": {"a": "b"}, "store": False, "service_tier": "auto",
    "stream_options": None, "max_completion_tokens": 4, "max_tokens": None,
    "safety_identifier": "x", "prompt_cache_key": "x",
}  # fmt: skip


OF_CHATS = {
    "logprobs": False, "top_logprobs": 0, "tools": [], "tool_choice": "none",
    "parallel_tool_calls": True, "response_format": {"type": "text"}, "modalities": ["text"],
    "reasoning_effort": "low", "verbosity": "low", "audio": None, "prediction": None,
}  # fmt: skip


def test_fields_of_openai_at_values_that_change_nothing_are_accepted(client):
    own = {"best_of": 1, "echo": False, "suffix": None, "logprobs": None}
    completed(client, **GREEDY, **own)
    chat = {"messages": MESSAGES, **GREEDY, **OF_CHATS}
    done = client.post("/v1/chat/completions", json=chat)
    assert done.status_code == 200, done.text


def test_sampling_can_be_ignored_by_the_server_but_not_several_texts(serving):
    sampled = {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "presence_penalty": 1}
    with serving(ignore_sampling=True) as client:
        text = completed(client)["choices"][0]["text"]
        assert completed(client, **sampled)["choices"][0]["text"] == text
        assert client.post("/v1/completions", json={"prompt": "a", "n": 2}).status_code == 400
    with serving() as client:
        for name, value in sampled.items():
            done = client.post("/v1/completions", json={"prompt": PROMPT, name: value})
            assert "start the server with --ignore-sampling" in done.json()["error"]["message"]


def test_an_error_repeats_no_more_than_a_piece_of_what_was_sent(client):
    long = "x" * 30_000
    for body in (
        {"prompt": "a", "temperature": long},
        {"prompt": "a", long: 1},
        {"prompt": "a", "model": long},
        {"prompt": "a", "method": long},
        {"prompt": {long: long}},
        {"prompt": "a", "options": {long: 1}},
    ):
        done = client.post("/v1/completions", json=body)
        assert done.status_code in (400, 404)
        assert len(done.content) < 2000
    assert len(client.get(f"/v1/models/{long}").content) < 2000
    assert len(client.get(f"/{long}").content) < 2000


@pytest.mark.parametrize("value", [-1, True, 1.5])
def test_logprobs_are_asked_for_with_a_number(client, value):
    done = client.post("/v1/completions", json={"prompt": "a", "logprobs": value})
    assert done.status_code == 400
    assert "logprobs" in done.json()["error"]["message"]


def test_a_token_of_a_piece_of_a_character_has_its_bytes_and_the_place_of_the_character():
    surfaces = (" é".encode()[:2], " é".encode()[2:], b" a", b"\n")
    rounds = [
        Round((Candidate(each.decode(errors="replace"), False, (), (), 0.5),), 0, 0, ())
        for each in surfaces
    ]
    result = Result(" é a", "stop", tuple(rounds), (4,), (1,), (4,), 0.0, surfaces=surfaces)
    found = read_request(Completion, b'{"prompt": "a"}').token_logprobs(_tokens(result, 0))
    assert found["tokens"] == [" \ufffd", "\ufffd", " a"]
    assert found["text_offset"] == [0, 1, 2]
    chat = read_request(Conversation, json.dumps({"messages": MESSAGES}).encode())
    content = chat.token_logprobs(_tokens(result, 0))["content"]
    assert b"".join(bytes(each["bytes"]) for each in content) == " é a".encode()


def test_a_field_that_is_there_twice_is_refused(client):
    done = client.post("/v1/completions", content='{"prompt": "a", "stop": "b", "stop": "c"}')
    assert done.status_code == 400
    assert "key 'stop' occurs twice" in done.json()["error"]["message"]


def test_half_a_surrogate_pair_is_refused(client):
    for body in ({"prompt": "a\ud800"}, {"prompt": "a", "stop": "\udc00"}):
        done = client.post("/v1/completions", content=json.dumps(body))
        assert done.status_code == 400
        assert "half of a surrogate pair" in done.json()["error"]["message"]
