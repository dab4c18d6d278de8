"""Answers that say how they came about: the field `rounds`."""

import json
from dataclasses import asdict

import pytest

from tests.serve.conftest import PROMPT, completed, streamed


def numbers(rounds):
    """Return rounds as JSON has them, without their numbers, and these: a batch changes digits."""
    found: list[float] = []
    text = json.dumps(rounds).replace("NaN", "null").replace("Infinity", "null")
    return json.loads(text, parse_float=lambda value: found.append(float(value))), found


@pytest.mark.parametrize("method", ["adafuse", "unite", "bytewise", "rerank", "cool_fusion"])
def test_a_stream_has_each_round_once_and_an_answer_has_all(serving, random_pair, method):
    with serving(ensemble=random_pair) as client:
        body = {"prompt": PROMPT, "method": method, "max_tokens": 6, "rounds": True}
        (result,) = random_pair.generate([PROMPT], method=method, max_new_tokens=6)
        (choice,) = completed(client, **body)["choices"]
        events = streamed(client, "/v1/completions", **body)
    own = [event["choices"][0] for event in events]
    said = [each for one in own for each in one["adafuse"]["rounds"]]
    rounds, values = numbers([asdict(one) for one in result.rounds])
    assert rounds
    for given in (choice["adafuse"]["rounds"], said):
        assert numbers(given) == (rounds, pytest.approx(values, rel=1e-4))
    assert "".join(each["text"] for each in own) == choice["text"]
    assert own[-1]["adafuse"] == {**choice["adafuse"], "rounds": []}
    assert own[-1]["adafuse"]["text"] == choice["text"]


def test_rounds_come_while_the_text_is_decoded(serving, random_pair):
    with serving(ensemble=random_pair) as client:
        events = streamed(client, "/v1/completions", prompt=PROMPT, max_tokens=12, rounds=True)
    assert sum(1 for event in events if event["choices"][0]["adafuse"]["rounds"]) > 2


def test_nobody_gets_rounds_who_does_not_ask_for_them(client):
    assert "adafuse" not in completed(client)["choices"][0]
    for method in ("adafuse", "rerank"):
        events = streamed(client, "/v1/completions", prompt=PROMPT, method=method)
        assert all("adafuse" not in event["choices"][0] for event in events)
        assert [event["choices"][0]["text"] for event in events].count("") == 1


def test_a_number_is_no_flag(client):
    done = client.post("/v1/completions", json={"prompt": PROMPT, "rounds": 1})
    assert done.status_code == 400
    assert "rounds" in done.json()["error"]["message"]
