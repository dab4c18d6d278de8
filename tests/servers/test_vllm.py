import math
from types import SimpleNamespace

import pytest
import torch

from adafuse.errors import ExampleError
from adafuse.servers.http import Http
from adafuse.servers.registry import connect
from adafuse.servers.server import PROBE, Ask
from adafuse.servers.vllm import Vllm
from tests.support.stand_in import TOP, spans, standing

ENDS = [2, 1, 0, 3]
PREFIX = tuple(range(50, 80))


@pytest.fixture(params=[True, False], ids=["processor", "plain"])
def server(request, distributions):
    with standing(distributions[1], processor=request.param, context=64) as server:
        yield server


@pytest.fixture
def vllm(server):
    return Vllm(Http(server.url), "toy", ENDS)


def logprobs(distributions, ids):
    """The log-probabilities of what follows some ids."""
    return distributions[1].after(ids)[0].log_softmax(0)


def test_it_is_noticed_whether_a_server_writes_spans(server, vllm):
    assert vllm.writes == server.processor


def test_an_adapter_has_the_context_of_its_base_model(server, monkeypatch):
    whole = server.answer
    adapter = {"id": "lora", "owned_by": "vllm", "max_model_len": None, "parent": "toy"}

    def answer(path, body, key):
        said = whole(path, body | {"model": "toy"}, key)
        return {"data": [*said["data"], adapter]} if path == "/v1/models" else said

    monkeypatch.setattr(server, "answer", answer)
    served = connect(server.url, "lora", None, ENDS).served
    assert (served.model, served.context) == ("lora", server.context)


def test_a_model_that_ends_where_that_is_tried_is_taken_all_the_same(server, distributions):
    likeliest = int(logprobs(distributions, PROBE.prefix).argmax())
    assert Vllm(Http(server.url), "toy", [likeliest, *ENDS]).writes == server.processor


def test_steps_have_the_likeliest_ids_and_those_that_were_written(vllm, distributions):
    forced, ids = (70, 81, 92), PREFIX
    steps = vllm.write(Ask(PREFIX, forced, ahead=3), 2)
    assert len(steps) == len(forced) + 1 + 3
    assert tuple(step.written for step in steps[:3]) == forced
    for step in steps:
        row = logprobs(distributions, ids)
        values, likeliest = row.topk(8)
        assert [index for index, _ in step.top[:8]] == likeliest.tolist()
        assert [value for _, value in step.top[:8]] == pytest.approx(values.tolist(), abs=1e-5)
        assert step.logprob == pytest.approx(float(row[step.written]), abs=1e-5)
        ids += (step.written,)
    assert all(step.written == step.top[0][0] for step in steps[3:])


@pytest.mark.parametrize("forced", [(), (70,), (70, 2, 81)])
@pytest.mark.parametrize("length", [30, 58, 59, 60])
def test_the_probability_of_all_ends_is_read_also_at_the_last_positions(
    vllm, distributions, forced, length
):
    prefix = tuple(range(50, 50 + length))
    last = vllm.write(Ask(prefix, forced, ends=True), 2)[len(forced)]
    row = logprobs(distributions, prefix + forced)
    assert last.log_end == pytest.approx(float(torch.logsumexp(row[ENDS], 0)), abs=1e-4)


def test_a_span_may_hold_an_end(vllm):
    steps = vllm.write(Ask(PREFIX, (2, 81), ahead=0), 2)
    assert [step.written for step in steps[:2]] == [2, 81]


def test_what_is_asked_for_is_within_the_limits_of_vllm(server, vllm):
    vllm.write(Ask(PREFIX, (70,), ahead=4, ends=True, stop=("\n",)), 2)
    assert server.asked
    assert all(body["logprobs"] <= TOP and "logprob_token_ids" not in body for body in server.asked)


@pytest.mark.parametrize(
    "kind",
    [
        *("not a number", "infinite", "least", "above 1", "near 0", "missing", "fewer", "empty"),
        "not json",
    ],
)
def test_wrong_content_is_asked_for_again_and_then_an_error(server, vllm, kind):
    right = vllm.write(Ask(PREFIX, (70,)), 2)
    left = [kind] * 3
    server.fault = lambda body: left.pop() if left else None
    assert vllm.write(Ask(PREFIX, (70,)), 2) == right
    server.fault = lambda body: kind
    with pytest.raises(ExampleError, match=rf"^the server {server.url} failed 9 times \(.*\)"):
        vllm.write(Ask(PREFIX, (70,)), 2)


def test_requests_written_ids_and_cached_ids_are_counted(server, vllm):
    vllm.write(Ask(PREFIX, (), 2), 2)
    before, requests = vllm.counts.cached, vllm.counts.requests
    vllm.write(Ask(PREFIX, (), 2), 2)
    assert vllm.counts.requests == requests + 1
    assert vllm.counts.cached - before == 16
    assert vllm.counts.written >= 6


def test_a_text_has_the_ids_of_the_servers_tokenizer(server, vllm):
    assert vllm.tokenize("the dog") == server.model.tokenizer.encode(
        "the dog", add_special_tokens=False
    )


def test_another_model_behind_the_same_name_is_refused(server, vllm, distributions):
    vllm.check_same()
    server.model = distributions[0]
    with pytest.raises(ExampleError, match="has another model than when decoding began"):
        vllm.check_same()


def test_log_probabilities_are_finite_and_sorted(vllm):
    (step,) = vllm.write(Ask(PREFIX), 2)
    values = [value for _, value in step.top]
    assert values == sorted(values, reverse=True)
    assert all(map(math.isfinite, values))


def test_ids_beyond_the_vocabulary_do_not_break_the_processor():
    asked = SimpleNamespace(extra_args={"forced": [900], "ends": [1, 900]})
    choose = spans().new_req_logits_processor(asked)
    assert all(len(choose([0] * count, torch.zeros(300))) == 300 for count in range(5))
