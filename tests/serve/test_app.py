"""What the server answers and refuses."""

import json
import re
import threading
import time
from pathlib import Path

import pytest

import adafuse.serve
from adafuse.decoding.method import Method
from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.methods import METHODS
from adafuse.methods.registry import register
from adafuse.options import MethodOptions
from adafuse.records.result import Chat
from adafuse.storage.parquet import read_rows
from tests.serve.conftest import MESSAGES, PROMPT, completed, streamed
from tests.support.thinking import OFF, ON, SWITCHED


def test_a_completion_is_what_generate_writes(client, pair):
    for settings in ({}, {"stop": ["\n"]}, {"max_tokens": 5}):
        answer = completed(client, **settings)
        own = {"max_new_tokens": settings.get("max_tokens", 16), "stop": settings.get("stop", [])}
        (result,) = pair.generate([PROMPT], **own)
        (choice,) = answer["choices"]
        assert choice["text"] == result.text[: len(choice["text"])]
        cut = max(result.tokens) > own["max_new_tokens"]
        assert cut == (choice["text"] != result.text)
        reason = "length" if cut else {"eos": "stop"}.get(result.stop_reason, result.stop_reason)
        assert choice["finish_reason"] == reason
        most = min(max(result.tokens), own["max_new_tokens"])
        assert answer["usage"]["completion_tokens"] == most
        assert answer["adafuse"][0]["rounds"] == len(result.rounds)


def test_several_prompts_are_several_choices(client, pair):
    prompts = [PROMPT, "Question: 3 plus 4\nAnswer:"]
    answer = completed(client, prompt=prompts)
    texts = [result.text for result in pair.generate(prompts, max_new_tokens=16)]
    assert [choice["text"] for choice in answer["choices"]] == texts
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]


def test_a_chat_with_a_model_that_has_no_template_is_read_plainly_and_the_start_says_so(
    serving, pair, monkeypatch, caplog
):
    monkeypatch.setattr(pair.models[1].tokenizer, "chat_template", None)
    with serving() as client:
        assert "has no chat template: it reads conversations plainly" in caplog.text
        model = client.service.ensemble.models[1]
        turns = [*MESSAGES, {"role": "assistant", "content": "It is"}, *MESSAGES]
        question = MESSAGES[0]["content"]
        text = (
            f"Be brief.\n\nUser: {question}\n\nAssistant: It is\n\nUser: {question}\n\nAssistant:"
        )
        chat = Chat([{"role": "system", "content": "Be brief."}, *turns])
        assert model.prompt_ids(chat) == model.prompt_ids(text)
        begun = Chat(turns[:2], continues=True)
        assert model.prompt_ids(begun) == model.prompt_ids(f"User: {question}\n\nAssistant: It is")
        answer = client.post("/v1/chat/completions", json={"messages": MESSAGES})
        assert answer.status_code == 200
    assert pair.models[1].tokenizer.chat_template is None


def test_a_chat_template_may_be_given_and_one_that_cannot_be_rendered_stops_the_start(
    serving, pair
):
    given = "{% for turn in messages %}<{{ turn.role }}>{{ turn.content }}{% endfor %}"
    with serving(templates=(None, given)) as client:
        model = client.service.ensemble.models[1]
        assert model.prompt_ids(Chat(MESSAGES)) == model.prompt_ids(
            f"<user>{MESSAGES[0]['content']}"
        )
    with (
        pytest.raises(UserError, match="--chat-template of llama cannot write a conversation"),
        serving(templates=(None, "{% for turn in %}")),
    ):
        pass


def test_a_request_may_set_variables_of_the_chat_templates_that_read_them(serving, pair, tmp_path):
    with serving(
        templates=(None, SWITCHED), template_kwargs=({}, ON), traces=tmp_path / "traces"
    ) as client:
        models = client.service.ensemble.models
        texts = [
            [model.tokenizer.decode(model.prompt_ids(Chat(MESSAGES, False, given)))]
            for given in ({}, OFF)
            for model in models
        ]
        assert texts[0] == texts[2]
        assert texts[3] == [texts[1][0] + "<think>\n\n</think>\n\n"]
        body = {"messages": MESSAGES, "chat_template_kwargs": OFF}
        answer = client.post("/v1/chat/completions", json=body).json()
        assert answer["usage"]["prompt_tokens"] == max(
            len(model.prompt_ids(Chat(MESSAGES, False, OFF))) for model in models
        )
        body["chat_template_kwargs"] = {"think": True}
        answer = client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 400
        assert "unknown variable of the models' chat templates 'think'" in answer.text
    (file,) = (tmp_path / "traces").glob("*.parquet")
    (row,) = read_rows(file)
    assert json.loads(row["options"])["chat_template_kwargs"] == OFF
    with (
        pytest.raises(UserError, match="unknown variable of the chat template of 'llama' 'thinks'"),
        serving(templates=(None, SWITCHED), template_kwargs=({}, {"thinks": 1})),
    ):
        pass


def test_the_seed_of_a_request_is_that_of_a_method_that_draws(serving, random_pair):
    ensemble = Ensemble(random_pair.models[:1])
    options = {"k": 1, "temperature": 2.0}
    with serving(ensemble=ensemble, method="self_consistency", options=options) as client:
        texts = [completed(client, seed=n)["choices"][0]["text"] for n in (0, 1)]
        for changes, text in (
            ({}, texts[0]),
            ({"seed": None}, texts[0]),
            ({"options": {"seed": 1}}, texts[1]),
            ({"seed": 0, "options": {"seed": 1}}, texts[1]),
        ):
            assert completed(client, **changes)["choices"][0]["text"] == text
        done = client.post("/v1/completions", json={"prompt": PROMPT, "seed": "x"})
        assert done.status_code == 400 and "seed must be a valid integer" in done.text
    assert texts[0] != texts[1]
    (own,) = ensemble.generate(
        [PROMPT], method="self_consistency", max_new_tokens=16, seed=1, **options
    )
    assert own.text.startswith(texts[1])


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


def test_a_stream_whose_text_is_replaced_ends_with_an_error(client):
    def decode(self, example):
        yield from METHODS["fixed_length"].decode(self, example)
        example.finish("my text", "stop")

    register(type("Odd", (METHODS["fixed_length"],), {"name": "odd", "decode": decode}))
    try:
        asked = {"prompt": PROMPT, "method": "odd", "max_tokens": 8}
        done = client.post("/v1/completions", json={**asked, "stream": True})
        assert "'odd' replaced text that was streamed; have its `replaces_text`" in done.text
        assert completed(client, method="odd", max_tokens=8)["choices"][0]["text"] == "my text"
    finally:
        del METHODS["odd"]


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


def test_what_a_method_of_somebody_else_yields_wrongly_is_told_with_its_name(serving):
    def decode(self, example):
        yield 5

    names = {"name": "odd", "Options": MethodOptions, "decode": decode}
    register(type("Odd", (Method,), names))
    try:
        with serving() as client:
            done = client.post("/v1/completions", json={"prompt": PROMPT, "method": "odd"})
    finally:
        del METHODS["odd"]
    told = done.json()["error"]["message"]
    assert done.status_code == 500
    assert told.startswith("method 'odd': TypeError: ") and Path(__file__).name in told


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


def test_each_prompt_and_each_refusal_is_a_line_of_the_log_without_its_text(client, caplog):
    caplog.set_level("INFO", "adafuse.serve.requests")
    name = completed(client)["id"]
    client.post("/v1/completions", json={"prompt": "a secret", "best_of": 2})
    client.get("/nowhere")
    done, refused, unknown = [record.getMessage() for record in caplog.records]
    assert done.startswith(f"{name}-0 done method=adafuse stop=")
    assert re.search(r" tokens=\d+,\d+ forwards=\d+,\d+ rounds=\d+ queue=0\.\d+ first=", done)
    assert refused.startswith("POST '/v1/completions' status=400 ") and "secret" not in refused
    assert unknown.startswith("GET '/nowhere' status=404 ")


def test_metrics_count_what_was_decoded(client):
    completed(client)
    told = client.get("/metrics").text
    assert 'adafuse_prompts_total{how="done",method="adafuse"} 1.0' in told
    assert "adafuse_waiting 0.0" in told
    assert 'adafuse_tokens_total{model="' in told
    assert 'adafuse_rounds_total{method="adafuse"}' in told
    for name in ("queue", "first_text", "token", "prompt"):
        assert f'adafuse_{name}_seconds_count{{method="adafuse"}} 1.0' in told


@pytest.mark.parametrize("limit", range(1, 15))
@pytest.mark.parametrize("stream", [True, False])
def test_a_text_has_at_most_max_tokens_tokens_in_each_model(serving, random_pair, limit, stream):
    asked = {"prompt": "Say", "max_tokens": limit}
    with serving(ensemble=random_pair) as client:
        if stream:
            counted = {"stream_options": {"include_usage": True}}
            *pieces, last = streamed(client, "/v1/completions", **asked, **counted)
            text = "".join(piece["choices"][0]["text"] for piece in pieces)
            reason, usage = pieces[-1]["choices"][0]["finish_reason"], last["usage"]
        else:
            answer = completed(client, **asked)
            text, reason = (answer["choices"][0][name] for name in ("text", "finish_reason"))
            usage = answer["usage"]
    (result,) = random_pair.generate(["Say"], max_new_tokens=limit)
    assert result.text.startswith(text)
    assert "\ufffd" not in text[-1:]
    assert reason == "length"
    assert usage["completion_tokens"] <= limit
    assert (max(result.tokens) > limit) <= (text != result.text)
    assert text


def test_without_max_tokens_a_text_has_what_is_left_of_the_context(serving, random_pair):
    tokens = max(len(model.prompt_ids(PROMPT)) for model in random_pair.models)
    with serving(ensemble=random_pair, longest=tokens + 7) as client:
        answer = completed(client)
        assert answer["choices"][0]["finish_reason"] == "length"
        assert 1 <= answer["usage"]["completion_tokens"] <= 7


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "a" + " " * 60_000},
        {"messages": [{"role": "user", "content": ""}] * 1000},
        {"prompt": "a", "stop": ["a"] * 100},
        {"prompt": "a", "stop": "a" * 300},
    ],
)
def test_what_is_too_long_is_refused_before_a_tokenizer_reads_it(serving, pair, body, monkeypatch):
    from adafuse.models.language_model import LanguageModel

    with serving() as client:

        def read(*_):
            raise AssertionError("read")

        monkeypatch.setattr(LanguageModel, "prompt_ids", read)
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        done = client.post(path, json=body)
        assert done.status_code == 400
        assert "read" not in done.json()["error"]["message"].split()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:8000"}, 200),
        ({"Host": "127.0.0.1"}, 200),
        ({"Host": "[::1]:8000", "Origin": "http://localhost:3000"}, 200),
        ({"Host": "box.local:1"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:8000"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "localhost@evil.example"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "localhost", "Origin": "http://evil.example"}, 403),
        ({"Host": "localhost", "Origin": "null"}, 403),
    ],
)
def test_without_a_key_only_pages_of_this_machine_are_answered(serving, headers, status):
    with serving(hosts=("box.local",)) as client:
        for path in ("/v1/models", "/metrics", "/health"):
            assert client.get(path, headers=headers).status_code == status
        done = client.post("/v1/completions", json={"prompt": "a"}, headers=headers)
        assert done.status_code == status
    with serving(hosts=("box.local",), api_key="k") as client:
        given = {**headers, "Authorization": "Bearer k"}
        assert client.get("/v1/models", headers=given).status_code == 200


def test_the_scheme_of_a_key_has_any_case_and_spaces(serving):
    with serving(api_key="sécret") as client:
        for given, status in (
            ("bearer sécret", 200), ("BEARER   sécret ", 200), ("Bearer\tsécret", 200),
            ("sécret", 401), ("Basic sécret", 401), ("Bearer", 401), ("", 401),
            ("Bearer sécret x", 401),
        ):  # fmt: skip
            headers = {"Authorization": given.encode()}
            assert client.get("/v1/models", headers=headers).status_code == status, given


def test_no_client_reads_a_path_of_this_machine(serving, pair, tmp_path, monkeypatch):
    from adafuse.models.language_model import LanguageModel
    from adafuse.storage.parquet import read_rows

    folder = str(Path(pair.models[0].name).parent)
    assert folder.startswith("/")

    def fail(*_):
        raise OSError(f"Can't load '{folder}/a b/tokenizer.json' nor {folder}/config.json")

    with serving(traces=tmp_path / "traces") as client:
        completed(client)
        told = client.get("/v1/models").text + client.get("/metrics").text
        refused = client.post("/v1/completions", json={"prompt": "a", "method": "single"}).text
        monkeypatch.setattr(LanguageModel, "prompt_ids", fail)
        refused += client.post("/v1/completions", json={"prompt": "a"}).text
        assert "'tokenizer.json' nor config.json" in refused
    (file,) = (tmp_path / "traces").iterdir()
    assert folder not in told + refused + str(read_rows(file)) + file.read_bytes().decode("latin")
    assert '"mistral"' in told


@pytest.mark.parametrize(
    ("charset", "text", "status"),
    [
        ("utf-8", "Olá?", 200), ('"UTF-8"', "Olá?", 200), ("utf-16", "Olá?", 200),
        ("us-ascii", "Hi?", 200), ("ISO-8859-1", "Hi?", 200), ("windows-1252", "Hi?", 200),
        ("ISO-8859-1", "Olá?", 415), ("shift_jis", "東", 415), ("utf-7", "Hi", 415),
        ("klingon", "Hi?", 415), ("", "Hi?", 415), ("zlib_codec", "Hi?", 415),
    ],
)  # fmt: skip
def test_a_request_is_read_in_the_charset_that_it_names_or_refused(client, charset, text, status):
    body = json.dumps({"prompt": text, "max_tokens": 1}, ensure_ascii=False)
    codec = charset.strip('"') if status == 200 else "utf-8"
    kind = f"application/json; charset={charset}"
    done = client.post(
        "/v1/completions", content=body.encode(codec), headers={"Content-Type": kind}
    )
    assert done.status_code == status, done.text
    if status == 415:
        assert "send UTF-8" in done.json()["error"]["message"]
    else:
        plain = client.post("/v1/completions", content=body.encode())
        assert done.json()["choices"] == plain.json()["choices"]


@pytest.mark.parametrize("before", ["{0}", "{0}{0}", "\n{0} {0}"])
def test_start_tokens_in_a_prompt_change_nothing_of_the_answer(serving, pair, before):
    one = Ensemble([pair.models[1]])
    start = before.format(one.models[0].tokenizer.bos_token)
    with serving(ensemble=one, method="single") as client:
        alone, doubled = (completed(client, prompt=text) for text in (PROMPT, start + PROMPT))
    assert doubled["choices"] == alone["choices"]
    assert doubled["usage"] == alone["usage"]


def test_a_request_is_followed_in_six_files(serving, tmp_path):
    reached = set()

    def follow(frame, event, _):
        if event == "call":
            reached.add(Path(frame.f_code.co_filename))

    threading.setprofile(follow)  # of the threads that the server starts
    try:
        with serving(traces=tmp_path / "traces") as client:
            reached.clear()
            completed(client, stop=["\n"])
    finally:
        threading.setprofile(None)
    room = Path(adafuse.serve.__file__).parent
    files = {file.stem for file in reached if file.parent == room}
    assert files == {"guards", "app", "protocol", "decoder", "metrics", "traces"}
