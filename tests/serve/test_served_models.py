"""`adafuse serve` over models that are on servers themselves: two servers become one endpoint."""

import json
import threading
import time

import pyarrow.parquet as pq
import pytest

pytest.importorskip("fastapi", reason="adafuse[serve] is not installed")

from tests.serve.conftest import PROMPT, completed, streamed
from tests.support.stand_in import ensemble, standing

PROMPTS = [PROMPT, "Question: Who?\nAnswer:", "Question: Where is it?\nAnswer:"]

pytestmark = pytest.mark.usefixtures("no_pauses")


@pytest.fixture
def two(distributions):
    with standing(distributions[0]) as one, standing(distributions[1]) as other:
        yield one, other


def test_clients_get_the_texts_of_loaded_models_whole_and_streamed(serving, pair, two):
    expected = [result.text for result in pair.generate(PROMPTS, max_new_tokens=16, stop=["\n"])]
    with serving(ensemble=ensemble(*two)) as client:
        choices = completed(client, prompt=PROMPTS, stop=["\n"])["choices"]
        assert [choice["text"] for choice in choices] == expected
        parts = streamed(client, "/v1/completions", prompt=PROMPT, stop=["\n"])
        assert "".join(part["choices"][0]["text"] for part in parts) == expected[0]


def test_traces_say_what_the_servers_ran(serving, two, tmp_path):
    with serving(ensemble=ensemble(*two), traces=tmp_path) as client:
        completed(client)
    (file,) = tmp_path.glob("*.parquet")
    settings = json.loads(pq.read_schema(file).metadata[b"adafuse"])["settings"]
    assert [each["engine"] for each in settings["served"]] == ["vllm", "vllm"]


def test_a_request_that_a_server_fails_is_an_error_of_its_own(serving, two):
    with serving(ensemble=ensemble(*two)) as client:
        two[0].fault = lambda body: "broken"
        failed = client.post("/v1/completions", json={"prompt": PROMPT})
        assert failed.status_code == 500
        assert f"the server {two[0].url} failed 9 times" in failed.json()["error"]["message"]
        two[0].fault = lambda body: None
        completed(client)


def test_a_request_ends_in_its_time_where_a_server_is_silent(serving, two):
    answers = threading.Event()
    with serving(ensemble=ensemble(*two), seconds=0.5) as client:
        two[0].fault = lambda body: answers.wait(60) and None
        start = time.monotonic()
        late = client.post("/v1/completions", json={"prompt": PROMPT})
        assert late.status_code == 504
        with client.stream("POST", "/v1/completions", json={"prompt": "a", "stream": True}) as sent:
            assert "took longer than 0.5 s" in sent.read().decode()
        assert time.monotonic() - start < 20
        answers.set()
    assert 'how="late",method="adafuse"} 2.0' in client.service.decoder.metrics.text()


def test_methods_that_read_whole_distributions_are_refused(serving, two):
    with serving(ensemble=ensemble(*two)) as client:
        refused = client.post("/v1/completions", json={"prompt": PROMPT, "method": "unite"})
    assert refused.status_code == 400
    assert "reads whole distributions" in refused.json()["error"]["message"]
