"""llama.cpp's server, in a stand-in for its answers, and the real one where it is installed."""

import json
import math
import os
import random
import socket
import subprocess
import time
from collections import Counter
from pathlib import Path
from threading import Barrier, Event

import httpx
import pytest

from adafuse.errors import ExampleError, UserError
from adafuse.servers.llama_cpp import LlamaCpp
from adafuse.servers.registry import connect
from adafuse.servers.server import Ask, Counts

URL = "http://stand-in"
SIZE, UNFINISHED, LETTER = 40, 39, 7
ENDS = (0, 1)


def logprobs(prefix):
    """The log-probabilities after some ids: anything, but always the same."""
    weights = [random.Random(f"{prefix} {n}").gauss(0, 2) for n in range(SIZE)]
    total = math.log(math.fsum(map(math.exp, weights)))
    return [weight - total for weight in weights]


def likeliest(prefix):
    return max(range(SIZE), key=logprobs(prefix).__getitem__)


class StandIn:
    """Answers as llama.cpp's server does, and keeps what it was asked."""

    def __init__(self):
        self.asked = []
        self.props = {
            "total_slots": 2,
            "build_info": "b1",
            "model_ftype": "F32",
            "default_generation_settings": {"n_ctx": 64},
        }

    def __call__(self, request):
        match request.url.path:
            case "/v1/models":
                model = {"id": "/here/toy.gguf", "owned_by": "llamacpp", "meta": {"n_vocab": SIZE}}
                return httpx.Response(200, json={"data": [model]})
            case "/props":
                return httpx.Response(200, json=self.props)
            case "/tokenize":
                return httpx.Response(200, json={"tokens": [LETTER]})
        self.asked.append(json.loads(request.content))
        return httpx.Response(200, json=self.completion(**self.asked[-1]))

    def completion(self, prompt, n_predict, n_probs, logit_bias, **_):
        """A request; nothing is said of an id that leaves a character unfinished."""
        written, rows = [], []
        for _ in range(n_predict):
            values = logprobs((*prompt, *written))
            biased = [value + dict(logit_bias).get(n, 0) for n, value in enumerate(values)]
            order = sorted(range(SIZE), key=lambda n: -values[n])[:n_probs]
            written.append(biased.index(max(biased)))
            if written[-1] != UNFINISHED:
                top = [{"id": n, "logprob": values[n]} for n in order]
                row = {"id": written[-1], "logprob": values[written[-1]], "top_logprobs": top}
                rows.append(row)
        timings = {"cache_n": len(prompt) - 1, "prompt_n": 1}
        said = {"completion_probabilities": rows} if rows else {}
        return {"tokens": written, "timings": timings, **said}


@pytest.fixture
def stand_in(monkeypatch):
    stand_in, client = StandIn(), httpx.Client
    monkeypatch.setattr(
        httpx, "Client", lambda **given: client(transport=httpx.MockTransport(stand_in), **given)
    )
    return stand_in


@pytest.fixture
def server(stand_in):
    server = connect(URL, None, None, ENDS)
    stand_in.asked.clear()
    server.counts = Counts()
    return server


def test_a_server_is_recognized_and_says_what_it_runs_but_not_where(server):
    assert isinstance(server, LlamaCpp)
    assert server.served[:4] == ("llama.cpp", "b1", "toy.gguf (F32)", 64)
    assert server.slots == 2


def test_each_forced_id_is_a_request_and_the_rest_is_one(server, stand_in):
    steps = server.write(Ask((3, 4), (5, 6), ahead=3, slot=1), 2)
    assert [body["prompt"] for body in stand_in.asked] == [[3, 4], [3, 4, 5], [3, 4, 5, 6]]
    assert [body["n_predict"] for body in stand_in.asked] == [1, 1, 4]
    assert not any("id_slot" in body for body in stand_in.asked)
    assert [step.written for step in steps[:2]] == [5, 6]
    assert len(steps) == 6
    assert server.counts.requests == 3
    ids = (3, 4)
    for step in steps:
        values = logprobs(ids)
        assert step.logprob == pytest.approx(values[step.written])
        assert step.top[0] == (likeliest(ids), pytest.approx(max(values)))
        ids = (*ids, step.written)


def test_what_was_read_after_another_text_is_not_used_whatever_the_server_was_started_with(
    server, stand_in
):
    server.write(Ask((3, 4), (5,), ahead=3), 2)
    assert [body["n_cache_reuse"] for body in stand_in.asked] == [0, 0]


def test_an_example_has_one_request_at_a_time_and_a_check_does_not_wait(
    server, monkeypatch: pytest.MonkeyPatch
):
    asked, answered, busy, most = Barrier(2), Event(), Counter(), Counter()
    plain = LlamaCpp._completion

    def completion(self, prefix, *rest):
        example = prefix[0]
        busy[example] += 1
        most[example] = max(most[example], busy[example])
        if example == 3 and not answered.is_set():
            asked.wait(10)
            assert answered.wait(10)
        steps = plain(self, prefix, *rest)
        busy[example] -= 1
        return steps

    monkeypatch.setattr(LlamaCpp, "_completion", completion)
    answers = [server.begin(Ask((3, 4), (index,), 1, slot=0), 2) for index in (5, 6)]
    asked.wait(10)
    server.write(Ask((4, 3), slot=1), 2)
    server.write(Ask((6, 3)), 2)
    answered.set()
    assert [len(answer.result(10)) for answer in answers] == [3, 3]
    assert most == {3: 1, 4: 1, 6: 1}


def test_an_id_that_leaves_a_character_unfinished_is_scored_all_the_same(server, stand_in):
    first, second = server.write(Ask((3, 4), (UNFINISHED,)), 2)
    assert first.written == UNFINISHED
    assert first.logprob == pytest.approx(logprobs((3, 4))[UNFINISHED])
    assert first.top[0][0] == likeliest((3, 4))
    assert second.written == likeliest((3, 4, UNFINISHED))


def test_a_continuation_that_leaves_a_character_unfinished_has_its_first_step(server):
    prefix = next((n,) for n in range(9999) if likeliest((n,)) == UNFINISHED)
    (step,) = server.write(Ask(prefix, ahead=3), 2)
    assert (step.written, step.logprob) == step.top[0]
    assert step.written == UNFINISHED


def test_the_probability_of_the_end_adds_up_all_end_ids(server):
    step = server.write(Ask((3,), (4,), ends=True), 2)[-1]
    values = logprobs((3, 4))
    assert math.exp(step.log_end) == pytest.approx(sum(math.exp(values[n]) for n in ENDS))


def test_a_server_that_writes_another_id_than_it_should_is_a_fault(server, stand_in, monkeypatch):
    whole = stand_in.completion
    monkeypatch.setattr("adafuse.servers.http._pause", lambda state: 0)
    stand_in.completion = lambda logit_bias, **body: whole(logit_bias=[], **body)
    odd = min(range(SIZE), key=logprobs((3,)).__getitem__)
    with pytest.raises(ExampleError, match="other ids than it was asked for"):
        server.write(Ask((3,), (odd,)), 2)


@pytest.mark.parametrize("missing", ["total_slots", "default_generation_settings", "build_info"])
def test_a_server_that_does_not_describe_itself_is_refused(stand_in, missing):
    del stand_in.props[missing]
    with pytest.raises(UserError, match=rf"does not describe itself .*\(KeyError: '{missing}'\)"):
        connect(URL, None, None, ENDS)


BINARY, GGUF = os.environ.get("ADAFUSE_LLAMA_SERVER"), os.environ.get("ADAFUSE_LLAMA_GGUF")


@pytest.fixture(scope="module")
def real():
    """llama.cpp's server with four slots, from `ADAFUSE_LLAMA_SERVER` with `ADAFUSE_LLAMA_GGUF`."""
    if not (BINARY and GGUF):
        pytest.skip("ADAFUSE_LLAMA_SERVER names no llama-server, or ADAFUSE_LLAMA_GGUF no model")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    options = ("-c", "4096", "-np", "4", "-t", "1", "--port", port, "--host", "127.0.0.1")
    libraries = {**os.environ, "LD_LIBRARY_PATH": str(Path(BINARY).parent)}
    process = subprocess.Popen(
        [BINARY, "-m", GGUF, *options], env=libraries, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(300):
            try:
                if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.2)
        yield connect(f"http://127.0.0.1:{port}", None, None, (0, 1, 2))
    finally:
        process.terminate()
        process.wait()


def test_the_real_server_scores_a_span_as_it_scores_each_of_its_ids(real):
    ids = tuple(real.tokenize("The capital of France is Paris. The capital of Germany is"))
    span = tuple(real.tokenize(" quite a 🙂"))
    steps = real.write(Ask(ids, span, ahead=3), 2)
    for n, step in enumerate(steps[: len(span)]):
        alone = real.write(Ask(ids + span[:n], (span[n],), slot=n % real.slots), 2)[0]
        assert step.written == span[n]
        assert step.logprob == pytest.approx(alone.logprob, abs=0.1)


def test_the_real_server_goes_on_as_it_would_step_by_step(real):
    ids = tuple(real.tokenize("One, two, three, four,"))
    for step in real.write(Ask(ids, ahead=4), 2):
        assert real.write(Ask(ids), 2)[0].written == step.written
        ids = (*ids, step.written)
