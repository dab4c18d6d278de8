import pytest

from adafuse.errors import ExampleError
from adafuse.servers.http import Http
from adafuse.servers.probe import TEXTS, probe
from adafuse.servers.vllm import Vllm
from tests.support.stand_in import standing

ENDS = [2, 1, 0, 3]


@pytest.fixture(params=[True, False], ids=["processor", "plain"])
def vllm(request, distributions):
    with standing(distributions[1], processor=request.param, context=256) as server:
        yield Vllm(Http(server.url), "toy", ENDS)


@pytest.fixture
def encode(distributions):
    return lambda text: distributions[1].tokenizer.encode(text, add_special_tokens=False)


def problems(server, encode, **how):
    return [line.problem for line in probe(server, encode, **how) if line.problem]


def changed(server, monkeypatch, when, nats=1.0):
    """Have a server say other log-probabilities where `when` holds of what is asked."""
    write = server.write

    def wrong(ask, top):
        steps = write(ask, top)
        if not when(ask):
            return steps
        return [step._replace(logprob=step.logprob - nats) for step in steps]

    monkeypatch.setattr(server, "write", wrong)


def test_a_server_that_is_right_has_no_problem_and_each_property_has_a_line(vllm, encode):
    vllm.slots = 4
    lines = list(probe(vllm, encode))
    assert not [line.problem for line in lines if line.problem]
    assert [line.text.partition(":")[0] for line in lines] == [
        *("tokenizer", "cold and cached", "cache", "given and likely ids"),
        *("at once and step by step", "alone and among 4", "p(END) of 4 ids", "limits"),
    ]
    assert lines[0].text == "tokenizer: 20 texts have the same ids"
    assert "0 of" not in lines[2].text
    assert lines[-1].text == "limits: a context of 256 ids, 20 likeliest ids"


def test_the_quick_probe_asks_for_little(vllm, encode):
    before = vllm.counts.requests
    assert not problems(vllm, encode, quick=True)
    assert vllm.counts.requests - before <= 12


def test_a_server_with_another_tokenizer_is_a_problem(vllm, encode):
    (problem,) = problems(vllm, lambda text: encode(text)[::-1], quick=True)
    assert problem.startswith(f"reads {TEXTS[0]!r} as the ids")


def test_a_server_whose_cache_changes_what_it_says_is_a_problem(vllm, encode, monkeypatch):
    seen = set()
    changed(vllm, monkeypatch, lambda ask: ask in seen or seen.add(ask))
    assert "cached prompts change (by 1 nats)" in problems(vllm, encode, quick=True)[0]


def test_a_server_that_scores_spans_wrongly_is_a_problem(vllm, encode, monkeypatch):
    changed(vllm, monkeypatch, lambda ask: ask.forced)
    assert "the ids of a span are scored wrongly" in problems(vllm, encode, quick=True)[0]


def test_a_server_that_goes_on_wrongly_is_a_problem(vllm, encode, monkeypatch):
    changed(vllm, monkeypatch, lambda ask: ask.ahead)
    vllm.slots = 2
    for quick in (False, True):
        assert "continuations are wrong" in problems(vllm, encode, quick=quick)[0]


def test_a_server_that_adds_up_the_end_wrongly_is_a_problem(vllm, encode, monkeypatch):
    vllm.slots = 2
    write = vllm.write

    def wrong(ask, top):
        steps = write(ask, top)
        return [step._replace(log_end=-1e-9) for step in steps] if ask.ends else steps

    monkeypatch.setattr(vllm, "write", wrong)
    assert "p(END) is wrong" in problems(vllm, encode)[0]


def test_a_server_on_which_other_examples_matter_is_a_problem(vllm, encode, monkeypatch):
    vllm.slots, together = 4, []
    begin = vllm.begin
    monkeypatch.setattr(vllm, "begin", lambda ask, top: together.append(ask) or begin(ask, top))
    changed(vllm, monkeypatch, lambda ask: ask in together[:1])
    assert "other examples change" in problems(vllm, encode)[0]


def test_rounding_in_16_bits_is_said_and_is_no_problem(vllm, encode, monkeypatch):
    changed(vllm, monkeypatch, lambda ask: ask.forced, nats=0.05)
    lines = list(probe(vllm, encode, quick=True))
    assert not [line.problem for line in lines if line.problem]
    assert "more than rounding in 32 bits" in lines[3].text


def test_a_server_that_writes_other_things_than_it_is_asked_for_fails(vllm, encode, monkeypatch):
    write = vllm.write
    monkeypatch.setattr(vllm, "write", lambda ask, top: [])
    with pytest.raises(ExampleError, match=r"does not write what it was told to$"):
        problems(vllm, encode, quick=True)
    without = lambda ask, top: [step._replace(log_end=None) for step in write(ask, top)]  # noqa: E731
    monkeypatch.setattr(vllm, "write", without)
    with pytest.raises(ExampleError, match=r"does not say how likely an end is$"):
        problems(vllm, encode)
