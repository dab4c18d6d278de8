"""What the server answers and refuses."""

import json
import threading
import time

import pytest

from adafuse.records import Chat

PROMPT = "Question: Which city is the capital of Rustan?\nAnswer:"
MESSAGES = [{"role": "user", "content": "Which city is the capital of Rustan?"}]


def completed(client, **body):
    done = client.post("/v1/completions", json={"prompt": PROMPT, **body})
    assert done.status_code == 200, done.text
    return done.json()


def streamed(client, path, **body):
    with client.stream("POST", path, json={"stream": True, **body}) as answer:
        assert answer.status_code == 200
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_a_completion_is_what_generate_writes(client, pair):
    for settings in ({}, {"stop": ["\n"]}, {"max_tokens": 5}):
        answer = completed(client, **settings)
        own = {"max_new_tokens": settings.get("max_tokens", 16), "stop": settings.get("stop", [])}
        (result,) = pair.generate([PROMPT], **own)
        (choice,) = answer["choices"]
        assert choice["text"] == result.text
        assert choice["finish_reason"] == {"eos": "stop"}.get(
            result.stop_reason, result.stop_reason
        )
        assert answer["usage"]["completion_tokens"] == max(result.tokens)
        assert answer["adafuse"][0]["rounds"] == len(result.rounds)


def test_several_prompts_are_several_choices(client, pair):
    prompts = [PROMPT, "Question: 3 plus 4\nAnswer:"]
    answer = completed(client, prompt=prompts)
    texts = [result.text for result in pair.generate(prompts, max_new_tokens=16)]
    assert [choice["text"] for choice in answer["choices"]] == texts
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]


def test_a_chat_with_a_model_that_has_no_template_names_the_way_out(client, pair, monkeypatch):
    monkeypatch.setattr(pair.models[1].tokenizer, "chat_template", None)
    answer = client.post("/v1/chat/completions", json={"messages": MESSAGES})
    said = answer.json()["error"]["message"]
    assert answer.status_code == 400
    assert said.startswith(f"model {pair.models[1].name!r} has no chat template")
    assert said.endswith("(/v1/completions)")


def test_what_prompts_begin_with_is_read_once(client, pair, monkeypatch):
    network, fed = pair.models[1].network, []
    forward = network.forward

    def counted(**given):
        fed.append(given["input_ids"].shape[1])
        return forward(**given)

    monkeypatch.setattr(network, "forward", counted)
    head = "Question: who founded the town of Orrin?\nAnswer: Maimoor\n\n" * 3
    most = []
    for name in ("Rustan", "Orrin", "Maimoor"):
        fed.clear()
        prompt = f"{head}Question: Which city is the capital of {name}?\nAnswer:"
        text = completed(client, prompt=prompt)["choices"][0]["text"]
        most.append(max(fed))
        assert text == pair.generate([prompt], max_new_tokens=16)[0].text
    size = len(pair.models[1].prompt_ids(head))
    assert most[0] > most[1] >= size > 2 * most[2]


def test_a_chat_goes_into_each_model_s_template(client, pair):
    answer = client.post("/v1/chat/completions", json={"messages": MESSAGES}).json()
    (result,) = pair.generate([MESSAGES], max_new_tokens=16)
    message = answer["choices"][0]["message"]
    assert (message["role"], message["content"]) == ("assistant", result.text)
    begun = [*MESSAGES, {"role": "assistant", "content": "It is"}]
    answer = client.post("/v1/chat/completions", json={"messages": begun}).json()
    (result,) = pair.generate([Chat(begun, continues=True)], max_new_tokens=16)
    assert answer["choices"][0]["message"]["content"] == result.text
    parts = [{"role": "user", "content": [{"type": "text", "text": MESSAGES[0]["content"]}]}]
    again = client.post("/v1/chat/completions", json={"messages": parts}).json()
    assert again["choices"][0]["message"]["content"] == message["content"]


def test_the_pieces_of_a_stream_are_the_text(client):
    whole = completed(client, stop=["\n"])["choices"][0]
    pieces = streamed(client, "/v1/completions", prompt=PROMPT, stop=["\n"])
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == whole["text"]
    assert [p["choices"][0]["finish_reason"] for p in pieces][-1] == whole["finish_reason"]
    assert len({piece["id"] for piece in pieces}) == 1
    options = {"stream_options": {"include_usage": True}}
    pieces = streamed(client, "/v1/chat/completions", messages=MESSAGES, **options)
    deltas = [piece["choices"][0]["delta"] for piece in pieces if piece["choices"]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert not any("role" in delta for delta in deltas[1:])
    chat = client.post("/v1/chat/completions", json={"messages": MESSAGES}).json()
    text = "".join(delta.get("content", "") for delta in deltas)
    assert text == chat["choices"][0]["message"]["content"]
    assert pieces[-1]["usage"] == chat["usage"]


@pytest.mark.parametrize("method", ["unite", "gac", "sweetspan", "adafuse"])
def test_a_request_names_its_method_and_options(client, pair, method):
    own = {"options": {"branching": 2}} if method == "adafuse" else {}
    answer = completed(client, method=method, **own)
    (result,) = pair.generate([PROMPT], method=method, max_new_tokens=16, **own.get("options", {}))
    assert answer["choices"][0]["text"] == result.text


def test_logprobs_are_those_of_the_fused_tokens(client, pair):
    answer = completed(client, method="unite", logprobs=1)
    found = answer["choices"][0]["logprobs"]
    (result,) = pair.generate([PROMPT], method="unite", max_new_tokens=16)
    assert "".join(found["tokens"]).startswith(answer["choices"][0]["text"])
    chosen = [taken.candidates[taken.selected] for taken in result.rounds]
    wanted = [-each.fused for each in chosen if not each.ends]
    assert found["token_logprobs"] == pytest.approx(wanted, abs=1e-4)
    chat = {"messages": MESSAGES, "method": "unite", "logprobs": True}
    content = client.post("/v1/chat/completions", json=chat).json()["choices"][0]["logprobs"]
    assert all(token["logprob"] <= 0 for token in content["content"])


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({"temperature": 0.7}, 400, "request: temperature must be 0: decoding is greedy and gives"),
        ({"n": 2}, 400, "request: n must be 1: decoding is greedy and gives one text, not 2"),
        ({"prompt": [1, 2]}, 400, "must be a text or a list of texts: the models have different"),
        ({"prompt": " "}, 400, "prompt must hold some text"),
        ({"temprature": 0}, 400, "request: unknown field 'temprature'; known are: "),
        ({"max_tokens": 0}, 400, "request: max_tokens must be greater than or equal to 1, not 0"),
        ({"max_tokens": 600}, 400, "and 600 more were asked for; there is room for 512"),
        ({"prompt": "word " * 700}, 400, "there is room for 512"),
        ({"method": "fuse"}, 400, "unknown method 'fuse'; known are: single, adafuse"),
        ({"method": "single"}, 400, "method single needs exactly 1 model, not 2"),
        ({"options": {"tau": -1}}, 400, "tau must be greater than or equal to 0, not -1"),
        ({"logprobs": 1}, 400, "method 'adafuse' commits words, for which each model has a prob"),
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


def test_tools_and_other_messages_are_refused(client):
    for change, sentence in (
        ({"tools": [{"type": "function"}]}, "tools must be left out"),
        ({"messages": []}, "messages must hold a message at least"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "unknown role 'tool'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "part that is no"),
    ):
        done = client.post("/v1/chat/completions", json={"messages": MESSAGES, **change})
        assert (done.status_code, sentence in done.json()["error"]["message"]) == (400, True)


def test_a_key_is_needed_for_everything_but_health(serving):
    with serving(api_key="secret") as client:
        assert client.get("/health").status_code == 200
        for headers, status in (({}, 401), ({"Authorization": "Bearer other"}, 401)):
            assert client.get("/v1/models", headers=headers).status_code == status
        done = client.get("/v1/models", headers={"Authorization": "Bearer secret"})
        assert done.json()["data"][0]["id"] == "adafuse"


def test_more_than_may_wait_are_refused_and_the_others_are_answered(serving, random_pair):
    with serving(ensemble=random_pair, batch_size=1, max_waiting=2) as client:
        done = client.post("/v1/completions", json={"prompt": [PROMPT] * 9})
        assert done.status_code == 400
        assert "9 prompts are too many at a time; send 3" in done.json()["error"]["message"]
        first = []

        def ask():
            first.append(completed(client, prompt=[PROMPT] * 3, max_tokens=100))

        asking = threading.Thread(target=ask)
        asking.start()
        while client.service.decoder.waiting < 2:
            time.sleep(0.01)
        done = client.post("/v1/completions", json={"prompt": PROMPT})
        assert done.status_code == 429
        assert done.headers["retry-after"] == "1"
        assert "2 prompts wait already; try again later" in done.json()["error"]["message"]
        asking.join()
        assert len(first[0]["choices"]) == 3
        assert completed(client, max_tokens=2)["choices"]


def test_a_request_that_takes_too_long_is_ended(serving):
    with serving(seconds=0.0) as client:
        done = client.post("/v1/completions", json={"prompt": PROMPT})
        assert done.status_code == 504
        assert "the request took longer than 0 s; ask for less" in done.text


def test_a_failure_of_decoding_ends_what_runs_and_nothing_else(client, monkeypatch):
    from adafuse.engine.scheduler import Scheduler

    def fail(self):
        raise ZeroDivisionError("the device is gone")

    with monkeypatch.context() as patch:
        patch.setattr(Scheduler, "_evaluate", fail)
        done = client.post("/v1/completions", json={"prompt": PROMPT})
        assert (done.status_code, done.json()["error"]["message"]) == (500, "the device is gone")
    assert client.get("/health").status_code == 200
    assert completed(client)["choices"][0]["text"]


def test_requests_at_the_same_time_share_forwards_and_change_nothing(client, pair):
    texts = [f"Question: {n} plus 4\nAnswer:" for n in range(12)]
    answers = {}

    def ask(text):
        answers[text] = completed(client, prompt=text)["choices"][0]["text"]

    threads = [threading.Thread(target=ask, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = [result.text for result in pair.generate(texts, max_new_tokens=16)]
    assert [answers[text] for text in texts] == wanted


def test_metrics_count_what_was_decoded(client):
    completed(client)
    told = client.get("/metrics").text
    assert 'adafuse_prompts_total{how="done"} 1.0' in told
    assert "adafuse_waiting 0.0" in told
    assert 'adafuse_tokens_total{model="' in told
    assert "adafuse_rounds_total" in told


def test_traces_of_requests_open_like_any_other(serving, tmp_path, pair):
    from adafuse.parquet import read_metadata, read_rows

    with serving(traces=tmp_path / "traces") as client:
        completed(client, stop=["\n"])
        completed(client, method="unite")
        streamed(client, "/v1/completions", prompt=PROMPT, stop=["\n"])
    files = sorted((tmp_path / "traces").iterdir())
    methods = [read_metadata(file)["settings"]["method"] for file in files]
    assert methods == ["adafuse", "unite"]
    rows = read_rows(files[0])
    assert len(rows) == 2
    assert [row["prompt"] for row in rows] == [PROMPT] * 2
    assert all(row["rounds"] for row in rows)
