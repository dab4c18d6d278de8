"""Networks whose layers keep states: nodes, texts and what is kept against full forwards."""

import time
from inspect import signature

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from adafuse.engine.choice import engine_for, way_of
from adafuse.engine.past import CacheLayout
from adafuse.engine.states import MOST_KEPT, Reading, StateEngine, layout_of
from tests.conftest import DEVICE, ensemble_of, toy_path
from tests.engine.test_architectures import (
    PROMPTS,
    Member,
    alone,
    by_full_forwards,
    check,
    grown,
    member,
    together,
)
from tests.support.architectures import STATEFUL, tiny_network

FEW = ("qwen3_5_text", "rwkv", "recurrent_gemma")
"""Kinds of the quick suite: attention and linear layers, no positions, modules that keep states."""


ROUNDED = 3e-4
"""Chunks of a delta rule round differently from single steps, on some CPUs by 1.3e-4."""


def stateful():
    marks = dict.fromkeys(STATEFUL, pytest.mark.soak) | dict.fromkeys(FEW, ())
    return [pytest.param(kind, marks=marks[kind]) for kind in sorted(STATEFUL)]


@pytest.fixture(scope="module")
def network(request):
    return tiny_network(request.param)


@pytest.mark.parametrize("network", stateful(), indirect=True)
def test_every_node_is_that_of_a_full_forward(network):
    engine = engine_for(member(network), "tree", top=2, rows=3)
    assert isinstance(engine, StateEngine)
    expected = by_full_forwards(network, PROMPTS)
    assert grown(engine, PROMPTS) == pytest.approx(expected, abs=ROUNDED)
    engine.share(PROMPTS[1][:9], least=1)
    sharing = [PROMPTS[1], PROMPTS[1][:9], [*PROMPTS[1][:9], 5]]
    assert grown(engine, sharing) == pytest.approx(by_full_forwards(network, sharing), abs=ROUNDED)


@pytest.mark.parametrize("network", stateful(), indirect=True)
def test_a_prompt_goes_on_as_it_does_alone_whatever_is_beside_it(network):
    check(network, alone)


@pytest.fixture(scope="module")
def hybrid():
    return tiny_network("qwen3_5_text")


@pytest.fixture
def engine(hybrid):
    return engine_for(member(hybrid), "tree", top=2, rows=3)


def shapes(engine, monkeypatch):
    """The shapes of the ids that the network reads from now on."""
    read = []
    forward = engine.model.network.forward

    def counted(input_ids, **given):
        read.append(tuple(input_ids.shape))
        return forward(input_ids=input_ids, **given)

    counted.__signature__ = signature(forward)
    monkeypatch.setattr(engine.model.network, "forward", counted)
    return read


def test_a_committed_text_is_not_read_again(engine, monkeypatch):
    read = shapes(engine, monkeypatch)
    together(engine, PROMPTS[:1])
    assert read == [(1, len(PROMPTS[0]))] + [(1, 1)] * 7


@pytest.mark.parametrize(("reading", "again"), [(Reading(1, 4), (1, 1)), (Reading(2, 4), (1, 2))])
def test_a_prompt_of_several_pieces_is_read_once(engine, hybrid, monkeypatch, reading, again):
    engine = StateEngine(engine.model, 2, engine._layout, reading, strict=True)
    read = shapes(engine, monkeypatch)
    sequence = engine.open(PROMPTS[0])
    engine.evaluate([sequence.root])
    assert read == [(1, 4), again]
    engine.evaluate([sequence.root.child(9)])
    assert read[2:] == [again if reading.least == 1 else (1, 2)]
    expected = by_full_forwards(hybrid, PROMPTS)
    assert grown(engine, PROMPTS) == pytest.approx(expected, abs=1e-4)


def test_a_commit_in_the_middle_of_a_chain_reads_on_from_before_it(engine, hybrid):
    sequence = engine.open(PROMPTS[0])
    engine.evaluate([sequence.root, *sequence.root.chain((5, 6, 7))])
    engine.commit(sequence.root.chain((5, 6))[-1])
    node = sequence.root.child(9)
    engine.evaluate([node])
    with torch.inference_mode():
        ids = torch.tensor([[*PROMPTS[0], 5, 6, 9]], device=DEVICE)
        full = hybrid(input_ids=ids, use_cache=False).logits[0, -1].log_softmax(-1)
    torch.testing.assert_close(
        node.next.logprobs, full[: len(node.next.logprobs)], atol=1e-4, rtol=0
    )


def test_a_released_root_is_read_again(engine):
    sequence = engine.open(PROMPTS[0])
    engine.evaluate([sequence.root])
    before = sequence.root.next.logprobs.clone()
    sequence.root.release()
    (node,) = sequence.root.chain((60,))
    engine.evaluate([node])
    assert node.logprob == pytest.approx(float(before[60]), abs=1e-4)


def test_what_is_kept_of_an_example_is_limited_and_its_text_always_is(engine, monkeypatch):
    sequence = engine.open(PROMPTS[0])
    engine.evaluate([sequence.root])
    for token in range(3, 3 + 2 * MOST_KEPT):
        engine.evaluate([sequence.root.child(token)])
    assert len(engine._kept[sequence]) == MOST_KEPT
    read = shapes(engine, monkeypatch)
    engine.evaluate(sequence.root.child(3).chain((4,)))
    assert read == [(1, 2)]
    engine.close(sequence)
    assert not engine._kept and not engine._pasts


def test_a_network_takes_the_fastest_way_that_is_exact():
    one_by_one = way_of(member(tiny_network("jamba")))
    assert one_by_one.reading.most == 1
    assert way_of(member(tiny_network("rwkv"))).reading.least == 2
    assert "layers of type linear_attention" in one_by_one.obstacles


@pytest.mark.parametrize("unused", [(), (7,), (0, 7, 63)])
def test_ids_without_tokens_hide_no_difference(unused, monkeypatch):
    monkeypatch.setattr(Member, "unused_ids", unused)
    assert way_of(member(tiny_network("jamba"))).reading.most == 1
    way = way_of(member(tiny_network("moshi")))
    assert not way.tree and way.layout is None


def test_a_network_without_probabilities_is_no_proof_of_anything():
    network = tiny_network("jamba")
    with torch.no_grad():
        network.get_output_embeddings().weight.fill_(float("nan"))
    way = way_of(member(network))
    assert not way.tree and way.layout is None
    assert way.obstacles == ("it gives NaN: its weights are damaged; download it again",)


def test_a_cache_that_cannot_be_taken_apart_is_refused():
    def read(ids):
        return torch.zeros(2 * len(ids), 2)

    with pytest.raises(ValueError, match=r"its cache has a tensor of shape \(2, 2\) without rows"):
        CacheLayout((), read)
    with pytest.raises(ValueError, match="its cache has a number that goes from 4 to 9"):
        CacheLayout((), lambda ids: len(ids[0]) ** 2)


def test_what_is_counted_is_what_is_kept(hybrid):
    layout = layout_of(member(hybrid))
    states, per_id = layout.bytes
    assert per_id == 2 * 2 * 2 * 8 * 4  # two layers of keys and values, two heads of size 8
    assert states > per_id


WIDE = {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "initializer_range": 0.1,
    "max_position_embeddings": 4096,
}
LAYERS = {
    "qwen3_5_text": {
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 64),
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 8,
    },
    "lfm2": {"layer_types": ["conv", "conv", "full_attention", "conv"]},
}
TEXT = "The quick brown fox jumps over the lazy dog while Mira has 7 apples and buys 5 more. "


@pytest.fixture(scope="module", params=LAYERS)
def wide(request, tmp_path_factory):
    """A pair of networks of one kind, wide enough that they take nearly all of the time."""
    folder, paths = tmp_path_factory.mktemp("wide"), []
    for seed, name in enumerate(("mistral", "llama")):
        tokenizer = AutoTokenizer.from_pretrained(toy_path(name))
        default = AutoConfig.for_model(request.param)
        sizes = {key: value for key, value in WIDE.items() if key in default.to_dict()}
        ends = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
        torch.manual_seed(seed)
        network = AutoModelForCausalLM.from_config(
            type(default)(vocab_size=len(tokenizer), **sizes, **LAYERS[request.param], **ends)
        )
        network.generation_config.eos_token_id = tokenizer.eos_token_id
        for each in (network, tokenizer):
            each.save_pretrained(folder / name)
        paths.append(folder / name)
    return ensemble_of(*paths)


@pytest.mark.sweep
@pytest.mark.parametrize(("rows", "most"), [(1, 1.5), (8, 2.0)])
def test_fused_decoding_takes_little_more_than_both_models_alone(
    wide, rows, most, record_testsuite_property
):
    prompts = [f"Row {number}. {TEXT * 30}" for number in range(rows)]
    wide.generate(prompts[:1], max_new_tokens=2)
    start = time.perf_counter()
    results = wide.generate(prompts, max_new_tokens=48, batch_size=rows)
    fused, apart = time.perf_counter() - start, 0.0
    for number, model in enumerate(wide.models):
        ids = [model.prompt_ids(prompt) for prompt in prompts]
        assert min(map(len, ids)) >= 1000
        tokens = sum(result.tokens[number] for result in results) // rows
        apart += generating(model.network, ids, tokens)
    ratio = fused / apart
    record_testsuite_property(f"{wide.models[0].network.config.model_type}, batch {rows}", ratio)
    assert ratio <= most


def generating(network, ids, tokens):
    """The seconds in which a network writes so many tokens after each prompt by itself."""
    longest = max(map(len, ids))
    inputs = torch.tensor([[0] * (longest - len(own)) + own for own in ids], device=DEVICE)
    mask = torch.tensor([[0] * (longest - len(own)) + [1] * len(own) for own in ids], device=DEVICE)
    length = {"min_new_tokens": tokens, "max_new_tokens": tokens, "pad_token_id": 0}
    start = time.perf_counter()
    network.generate(inputs, attention_mask=mask, do_sample=False, **length)
    return time.perf_counter() - start
