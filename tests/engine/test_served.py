"""Models on servers give what they give in this process, by whatever way a server is asked."""

import math
from dataclasses import replace

import pytest

from adafuse.development.gate_file import write_gate
from adafuse.engine.node import evaluated
from adafuse.engine.reference import ReferenceEngine
from adafuse.engine.served import ServedEngine
from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from tests.conftest import toy_path
from tests.decoding.test_gate import gate
from tests.support.results import assert_same, assert_same_up_to_near_ties
from tests.support.stand_in import ensemble, standing

PROMPTS = [
    "Question: Who founded the town of Orrin?\nAnswer:",
    "Translate English to German.\nQuestion: the big dog sees a red house\nAnswer:",
    "Wir haben jetzt 4 Monate alte Mäuse, „die Diabetes hatten“ – 漢字 🙂",
    "a",
]
METHODS = [
    ("adafuse", {}),
    ("adafuse", {"branching": 3}),
    ("adafuse", {"margin": "word", "branching": 2, "fusion": "mixture"}),
    ("adafuse", {"ask": "unsure", "sure": 0.2, "leader": 1}),
    ("fixed_length", {"words": 3}),
    ("beam_scaling", {"width": 2}),
    ("sweetspan", {}),
    ("cool_fusion", {}),
    ("cool_fusion", {"segments": "shortest", "rerank": True}),
    ("specfuse", {"hedge": 0.5}),
    ("rerank", {}),
]
WHOLE = [
    ("unite", {}),
    ("gac", {}),
    ("deepen", {}),
    ("bytewise", {}),
    ("specfuse", {"sampling": True}),
]
"""Methods that read whole distributions."""
SHORT = {"max_new_tokens": 8, "stop": ["\n\n"]}
CONTEXT = 96


@pytest.fixture(scope="module", params=[True, False], ids=["processor", "plain"])
def served(request, distributions):
    """The default pair on two servers."""
    first, second = distributions
    with (
        standing(first, processor=request.param) as one,
        standing(second, processor=request.param) as other,
    ):
        yield ensemble(one, other)


@pytest.fixture
def servers(distributions):
    """Two servers that write spans."""
    with standing(distributions[0]) as one, standing(distributions[1]) as other:
        yield one, other


_here: dict[str, list] = {}


def decoded_here(pair, method, options):
    """What the tree engine decodes, once."""
    key = f"{method} {options}"
    if key not in _here:
        _here[key] = pair.generate(PROMPTS, method=method, **options, **SHORT)
    return _here[key]


@pytest.mark.parametrize(("method", "options"), METHODS)
def test_every_method_of_spans_gives_what_it_gives_in_process(pair, served, method, options):
    plain = decoded_here(pair, method, options)
    assert any(result.rounds for result in plain)
    for batch_size in (1, 8):
        there = served.generate(PROMPTS, method=method, batch_size=batch_size, **options, **SHORT)
        assert_same(there, plain)


def test_a_learned_gate_decides_as_in_process(pair, served, tmp_path):
    fitted = gate("mistral", "llama", bias=(0.5, -0.5), weights={"least_margin": 1.0})
    write_gate(tmp_path / "gate.json", fitted)
    options = {"fusion": "learned", "gate": str(tmp_path / "gate.json"), **SHORT}
    assert_same(served.generate(PROMPTS, **options), pair.generate(PROMPTS, **options))


def test_a_single_model_gives_what_it_gives_in_process(distributions):
    here = Ensemble.from_pretrained([toy_path("llama")], device="cpu")
    with standing(distributions[1]) as server:
        there = ensemble(server, models=["llama"])
        options = {"method": "single", **SHORT}
        assert_same(there.generate(PROMPTS, **options), here.generate(PROMPTS, **options))


def test_the_end_of_a_text_is_scored_as_in_process(pair, served):
    prompts = ["Question: Who founded the town of Orrin?\nAnswer: Tom Barlow\n"]
    options = {"method": "adafuse", "branching": 3, "max_new_tokens": 24}
    there = served.generate(prompts, **options)
    ended = [c for taken in there[0].rounds for c in taken.candidates if c.ends]
    assert ended
    assert all(math.isfinite(value) for each in ended for value in each.nll)
    assert_same(there, pair.generate(prompts, **options))


def test_log_likelihoods_are_those_in_process(pair, served):
    requests = [
        (PROMPTS[0], " Mira"),
        (PROMPTS[0], " Tom Barlow\n"),
        ("", "a"),
        (PROMPTS[3], " 🙂"),
    ]
    here, there = dict(pair.loglikelihoods(requests)), dict(served.loglikelihoods(requests))
    assert there.keys() == here.keys()
    for index, plain in here.items():
        assert there[index].logprobs == pytest.approx(plain.logprobs, abs=1e-4)
        assert replace(there[index], logprobs=plain.logprobs) == plain


def test_one_model_may_be_on_a_server_and_the_other_here(pair, distributions):
    with standing(distributions[1]) as server:
        paths = [toy_path("mistral"), toy_path("llama")]
        mixed = Ensemble.from_pretrained(paths, device="cpu", server=[None, server.url])
        for batch_size in (1, 8):
            options = {"branching": 2, **SHORT}
            there = mixed.generate(PROMPTS, batch_size=batch_size, **options)
            assert_same(there, pair.generate(PROMPTS, **options))


@pytest.mark.parametrize(("method", "options"), WHOLE)
def test_whole_distributions_are_refused_before_anything_is_asked(servers, method, options):
    there = ensemble(*servers)
    asked = [len(server.asked) for server in servers]
    with pytest.raises(UserError, match=r"^\S+ ?\S* reads whole distributions [^.]*$"):
        there.generate(PROMPTS, method=method, **options)
    assert [len(server.asked) for server in servers] == asked


def test_the_reference_engine_is_refused_before_anything_is_asked(servers):
    there = ensemble(*servers)
    asked = [len(server.asked) for server in servers]
    with pytest.raises(UserError, match="is on a server, which is its engine; leave out engine"):
        there.generate(PROMPTS, engine="reference")
    assert [len(server.asked) for server in servers] == asked


def read(engine, prompt, spans):
    """The likeliest ids, log-probabilities and p(END) along some spans after a prompt."""
    sequence = engine.open(prompt)
    chains = [sequence.root.chain(span) for span in spans]
    for chain in chains:
        chain[-1].ends = True
    nodes = [sequence.root, *(node for chain in chains for node in chain)]
    for requests in evaluated(nodes):
        engine.evaluate(requests)
    numbers = [node.logprob for chain in chains for node in chain]
    numbers += [value for node in nodes for value in node.next.top_logprobs[:2]]
    numbers += [chain[-1].next.log_end for chain in chains]
    tops = [node.next.top_ids[:2] for node in nodes]
    engine.close(sequence)
    return tops, numbers


@pytest.mark.parametrize("length", [20, CONTEXT - 6, CONTEXT - 5, CONTEXT - 4])
@pytest.mark.parametrize("processor", [True, False])
def test_spans_and_ends_are_read_up_to_the_last_position(pair, distributions, processor, length):
    prompt, spans = [*range(50, 50 + length)], [(70, 81, 92), (70, 85), (101,)]
    with standing(distributions[1], processor=processor, context=CONTEXT) as server:
        (model,) = ensemble(server, models=["llama"]).models
        assert model.context == CONTEXT - 1
        tops, numbers = read(ServedEngine(model, 2), prompt, spans)
    other_tops, others = read(ReferenceEngine(pair.models[1], 2), prompt, spans)
    assert (tops, numbers) == (other_tops, pytest.approx(others, abs=1e-4))


def test_with_the_processor_a_span_is_one_request_and_what_follows_it_none(distributions):
    with standing(distributions[1]) as server:
        (model,) = ensemble(server, models=["llama"]).models
        engine, before = ServedEngine(model, 2), len(server.asked)
        sequence = engine.open([*range(50, 70)])
        last = sequence.root.chain((70, 81, 92))[-1]
        engine.evaluate([sequence.root, *last.path()])
        assert len(server.asked) == before + 1
        following = last.child(last.next.greedy)
        assert not following.missing
        engine.commit(following)
        assert not sequence.root.missing


def test_no_text_goes_beyond_the_context_of_the_server(distributions, pair):
    prompt = "Question: " + "the big dog sees a red house " * 8
    ids = [len(model.prompt_ids(prompt)) for model in pair.models]
    with (
        standing(distributions[0], context=ids[0] + 8) as one,
        standing(distributions[1], context=ids[1] + 8) as other,
    ):
        (result,) = ensemble(one, other).generate([prompt], max_new_tokens=40)
    assert result.error is None
    assert result.stop_reason == "length"
    assert max(result.tokens) <= 8


def test_only_a_near_tie_excuses_another_text(pair):
    (plain,) = pair.generate(PROMPTS[:1], branching=2, **SHORT)
    first, *rest = plain.rounds
    other = replace(first, selected=int(first.selected == 0))
    parted = replace(plain, text="another", rounds=(other, *rest))
    gap = abs(first.candidates[first.selected].fused - first.candidates[other.selected].fused)
    assert assert_same_up_to_near_ties([parted], [plain], nll=gap) == 1
    with pytest.raises(AssertionError):
        assert_same_up_to_near_ties([parted], [plain], nll=gap / 3)
    with pytest.raises(AssertionError):  # the same choices, but another text
        assert_same_up_to_near_ties([replace(plain, text="another")], [plain], nll=1)
    candidates = tuple(replace(each, text=each.text + "x") for each in first.candidates)
    unlike = replace(plain, rounds=(replace(first, candidates=candidates), *rest))
    with pytest.raises(AssertionError):  # other candidates are no tie
        assert_same_up_to_near_ties([unlike], [plain], nll=1)
