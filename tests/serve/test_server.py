"""A server in a process of its own, with OpenAI's own client."""

import socket
import threading
import time

import pytest

from adafuse.cli import serve
from tests.cli.terminal import adafuse
from tests.conftest import toy_path
from tests.serve.conftest import started

httpx = pytest.importorskip("httpx")

GONE = 'adafuse_prompts_total{how="gone",method="adafuse"}'
PROMPT = "Question: Which city is the capital of Rustan?\nAnswer:"


def test_the_client_of_openai_reads_texts_and_streams(server, pair):
    openai = pytest.importorskip("openai", reason="openai is not installed")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    assert [model.id for model in client.models.list()] == ["adafuse"]
    (result,) = pair.generate([PROMPT], stop=["\n"], max_new_tokens=16, branching=2)
    asked = {"model": "adafuse", "prompt": PROMPT, "stop": ["\n"], "max_tokens": 16}
    body = {"extra_body": {"options": {"branching": 2}}}
    assert client.completions.create(**asked, **body).choices[0].text == result.text
    pieces = client.completions.create(**asked, **body, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == result.text
    body["extra_body"]["rounds"] = True
    pieces = client.completions.create(**asked, **body, stream=True)
    rounds = [one for piece in pieces for one in piece.choices[0].adafuse["rounds"]]
    texts = [one["candidates"][one["selected"]]["text"] for one in rounds]
    assert "".join(texts).startswith(result.text)
    messages = [{"role": "user", "content": "Who?"}]
    (result,) = pair.generate([messages], max_new_tokens=16)
    answer = client.chat.completions.create(model="adafuse", messages=messages, max_tokens=16)
    assert answer.choices[0].message.content == result.text
    with pytest.raises(openai.BadRequestError, match="temperature must be 0: decoding is greedy"):
        client.chat.completions.create(model="adafuse", messages=messages, temperature=1.0)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_stops_its_text(endless, stream):
    asked = {"prompt": PROMPT, "max_tokens": 3000, "stream": stream}
    before = endless.gauge(GONE)
    with httpx.Client(timeout=httpx.Timeout(10, read=1.5 if not stream else 10)) as client:
        if stream:
            with client.stream("POST", f"{endless.url}/v1/completions", json=asked) as answer:
                next(answer.iter_lines())
        else:
            with pytest.raises(httpx.ReadTimeout):
                client.post(f"{endless.url}/v1/completions", json=asked)
    end = time.monotonic() + 30
    while endless.gauge("adafuse_running") or endless.gauge(GONE) == before:
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.soak
def test_sigterm_finishes_what_runs_and_writes_its_trace(tmp_path, random_pair):
    models = [model.name for model in random_pair.models]
    with started(tmp_path, "--traces", str(tmp_path / "traces"), models=models) as server:
        answers = []

        def ask():
            done = httpx.post(
                f"{server.url}/v1/completions",
                json={"prompt": PROMPT, "max_tokens": 200}, timeout=60,
            )  # fmt: skip
            answers.append(done.json()["choices"][0]["text"])

        asking = threading.Thread(target=ask)
        asking.start()
        while not server.gauge("adafuse_running"):
            time.sleep(0.01)
        assert server.stop() == 0
        asking.join()
    assert len(answers[0]) > 100
    assert len(list((tmp_path / "traces").iterdir())) == 1


@pytest.mark.soak
def test_finished_rows_are_on_disk_after_a_kill_and_the_next_server_has_them(tmp_path):
    from adafuse.storage.journal import journal_rows
    from adafuse.storage.parquet import read_rows

    folder = tmp_path / "traces"
    with started(tmp_path, "--traces", str(folder)) as server:
        for _ in range(2):
            httpx.post(f"{server.url}/v1/completions", json={"prompt": PROMPT, "max_tokens": 4})
    rows = journal_rows(folder / "requests.journal").values()
    assert [row["prompt"] for row in rows] == [PROMPT] * 2
    with started(tmp_path, "--traces", str(folder)) as server:
        assert server.stop() == 0
    assert not (folder / "requests.journal").exists()
    files = sorted(folder.glob("*.parquet"))
    assert {row["id"] for row in read_rows(files[-1])} == {row["id"] for row in rows}


def test_what_is_half_sent_ends_soon_and_holds_up_no_end(tmp_path, monkeypatch):
    def opened(server, sent):
        host, port = server.url.removeprefix("http://").split(":")
        connection = socket.create_connection((host, int(port)), timeout=30)
        connection.sendall(sent)
        return connection

    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    half = head + b"Content-Length: 100\r\n\r\n{"
    with started(tmp_path) as server:
        began = time.monotonic()
        late = [opened(server, sent) for sent in (b"", head, half)]
        answers = [connection.recv(1000) for connection in late]
        assert time.monotonic() - began < 25
        assert answers[:2] == [b"", b""]
        assert answers[2].startswith(b"HTTP/1.1 408 ")
        kept = [opened(server, sent) for sent in (b"", head, half)]
        time.sleep(0.3)
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 8  # where it waited for them: 10
        for connection in (*late, *kept):
            connection.close()


def test_a_key_comes_from_the_environment_or_a_file(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(serve, "load", lambda *given: None)
    monkeypatch.setattr("adafuse.serve.app.Service", lambda models, serving: serving)
    monkeypatch.setattr(serve, "_answer", lambda listener, serving: kept.append(serving.api_key))
    (tmp_path / "key").write_text("of the file\n")
    single = ["serve", "--model", toy_path("llama"), "--method", "single", "--port", "0"]
    assert adafuse(*single, ADAFUSE_API_KEY="secret").returncode == 0
    assert adafuse(*single, "--api-key-file", str(tmp_path / "key")).returncode == 0
    assert kept == ["secret", "of the file"]


def test_what_cannot_start_says_so_before_models_load(tmp_path, monkeypatch):
    monkeypatch.setattr(serve, "load", None)

    def told(*options):
        done = adafuse("serve", "--model", toy_path("llama"), *options)
        assert done.returncode == 2
        return done.stderr

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "(Address already in use); give another --host or --port" in told(
            "--method", "single", "--port", port
        )
    assert "method llm_blender needs at least 2 models, not 1" in told("--method", "llm_blender")
    (tmp_path / "key").write_text("\n")
    assert "is empty; write the key into it" in told(
        "--method", "single", "--api-key-file", str(tmp_path / "key")
    )
    assert "leaves no room for a prompt" in told("--method", "single", "--max-length", "100")
