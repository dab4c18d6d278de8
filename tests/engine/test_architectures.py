"""Every architecture against `generate`, alone and together, beyond windows and rope borders."""

import inspect
from functools import partial
from itertools import chain

import pytest
import torch
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from adafuse.engine.choice import engine_for, way_of
from adafuse.engine.reference import ReferenceEngine
from adafuse.engine.scheduler import Finished, Scheduler
from adafuse.engine.tree import TreeEngine
from adafuse.models.language_model import LoadedModel
from tests.conftest import DEVICE
from tests.support.architecture_page import PAGE, line
from tests.support.architectures import DYNAMIC, LONGROPE, VOCABULARY, continued, tiny_network

PROMPTS = [[(7 * i + 3 + n) % 61 + 3 for i in range(n)] for n in (5, 30, 12)]
COUNT = 8

VARYING = {
    "llama with longrope": ("llama", {"rope_parameters": LONGROPE}),
    "phi3 with longrope": (
        "phi3",
        {"rope_parameters": LONGROPE, "original_max_position_embeddings": 16},
    ),
    "llama with dynamic": ("llama", {"rope_parameters": DYNAMIC, "max_position_embeddings": 16}),
}
"""Networks whose rotary factors change after 16 tokens."""
SHARING = {
    "num_hidden_layers": 8,
    "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 2,
    "num_kv_shared_layers": 3,
    "vocab_size_per_layer_input": VOCABULARY,
}
"""Upper layers read the keys and values of lower ones."""
ODD = {
    **VARYING,
    "gpt_neo": ("gpt_neo", {"attention_types": [[["global", "local"], 1]]}),
    "moshi": ("moshi", {}),
    "gpt_neox_japanese": ("gpt_neox_japanese", {}),
    "gemma4_text": ("gemma4_text", SHARING | {"hidden_size_per_layer_input": 8}),
    "gemma3n_text": (
        "gemma3n_text",
        SHARING | {"intermediate_size": [32] * 8, "activation_sparsity_pattern": [0.0] * 8},
    ),
    "lfm2": ("lfm2", {}),
    "mistral": ("mistral", {}),
    "gemma3_text": ("gemma3_text", {}),
}
OTHERWISE = {
    "camembert",
    "data2vec-text",
    "roberta",
    "roberta-prelayernorm",
    "xlm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xlnet",
    "xmod",
}
"""`generate` runs other inputs: RoBERTa's positions from 0, texts of XLM and XLNet with a mask."""


class Member(LoadedModel):
    """A network as a member, with ids in the place of a tokenizer."""

    vocabulary = VOCABULARY
    unused_ids = ()


def member(network):
    ends = {2: "tokenizer"}
    return Member(name="tiny", network=network, tokenizer=None, end_ids=ends, context=60)


def alone(network, prompt):
    """The likeliest ids after a prompt, by full forwards."""
    ids = list(prompt)
    with torch.inference_mode():
        for _ in range(COUNT):
            logits = network(input_ids=torch.tensor([ids], device=DEVICE), use_cache=False).logits
            ids.append(int(logits[0, -1, :VOCABULARY].argmax()))
    return ids[len(prompt) :]


def together(engine, prompts):
    """The likeliest ids after some prompts, side by side."""
    sequences = [engine.open(prompt) for prompt in prompts]
    for _ in range(COUNT):
        engine.evaluate([sequence.root for sequence in sequences])
        for sequence in sequences:
            engine.commit(sequence.root.child(sequence.root.next.greedy))
    for sequence in sequences:
        engine.close(sequence)
    return [sequence.ids[sequence.prompt_length :] for sequence in sequences]


def check(network, expected):
    """A model gives what is expected of each prompt, whatever is beside it."""
    wanted = [expected(network, prompt) for prompt in PROMPTS]
    for rows in (1, 3):
        engine = engine_for(member(network), "tree", top=2, rows=rows)
        sets = [PROMPTS] if rows == 3 else [[prompt] for prompt in PROMPTS]
        assert [ids for prompts in sets for ids in together(engine, prompts)] == wanted, rows


@pytest.mark.parametrize(("kind", "changes"), ODD.values(), ids=ODD)
def test_a_prompt_goes_on_as_it_does_alone_whatever_is_beside_it(kind, changes):
    check(tiny_network(kind, **changes), partial(continued, count=COUNT))


def grown(engine, rows):
    """Log-probabilities of two branches after each of some prompts, and of what follows one."""
    sequences = [engine.open(prompt) for prompt in rows]
    chains = [s.root.chain(ids) for s in sequences for ids in ((5, 6, 7, 8, 9), (9, 8, 7))]
    engine.evaluate([*(s.root for s in sequences), *chain.from_iterable(chains)])
    found = read(chains)
    for first in chains[::2]:
        engine.commit(first[1])
    chains = [sequence.root.chain((7, 11, 12)) for sequence in sequences]
    engine.evaluate(chain.from_iterable(chains))
    found += read(chains)
    for sequence in sequences:
        engine.close(sequence)
    return found


def read(chains):
    nodes = chain.from_iterable(chains)
    return [value for node in nodes for value in (node.logprob, float(node.next.logprobs[9]))]


def by_full_forwards(network, rows):
    """What `grown` gives, from a full forward of the text up to each node."""
    found = []
    with torch.inference_mode():
        turns = [((), (5, 6, 7, 8, 9)), ((), (9, 8, 7))], [((5, 6), (7, 11, 12))]
        for prompt, (kept, added) in [(p, c) for turn in turns for p in rows for c in turn]:
            ids = [*prompt, *kept]
            for token in added:
                before = after(network, ids)
                ids.append(token)
                found += [float(before[token]), float(after(network, ids)[9])]
    return found


def after(network, ids):
    logits = network(input_ids=torch.tensor([ids], device=DEVICE), use_cache=False).logits
    return logits[0, -1, :VOCABULARY].float().log_softmax(-1)


@pytest.mark.parametrize("engine", [ReferenceEngine, partial(TreeEngine, rows=3)])
@pytest.mark.parametrize("kind", ["llama with longrope", "phi3 with longrope"])
def test_each_node_has_the_rotary_factors_of_its_own_length(kind, engine):
    name, changes = VARYING[kind]
    network = tiny_network(name, **changes)
    rows = [prompt[:length] for prompt, length in zip(PROMPTS, (5, 13, 11), strict=True)]
    found = grown(engine(member(network), top=2), rows)
    assert found == pytest.approx(by_full_forwards(network, rows), abs=2e-5)


def test_each_node_of_a_model_that_sees_what_follows_is_read_at_the_end_of_its_text():
    network = tiny_network("bert", is_decoder=False)
    engine = engine_for(member(network), "tree", top=2, rows=3)
    found = grown(engine, PROMPTS)
    assert found == pytest.approx(by_full_forwards(network, PROMPTS), abs=2e-5)


@pytest.mark.parametrize("engine", [ReferenceEngine, partial(TreeEngine, rows=3)])
def test_dynamic_rotary_factors_do_not_remember_longer_texts(engine):
    name, changes = VARYING["llama with dynamic"]
    prompts = [*PROMPTS, PROMPTS[1][:18]]
    fresh = [alone(tiny_network(name, **changes), prompt) for prompt in prompts]
    running = engine(member(tiny_network(name, **changes)), top=2)
    together(running, PROMPTS[1:2])
    assert [together(running, [prompt])[0] for prompt in prompts] == fresh


def test_a_prefix_beyond_the_rope_border_is_shared_up_to_it():
    name, changes = VARYING["llama with longrope"]
    network = tiny_network(name, **changes)
    engine = TreeEngine(member(network), top=2, rows=2)
    engine.share(PROMPTS[1], least=1)
    prompts = [PROMPTS[1][:14], [*PROMPTS[1], 7]]
    assert together(engine, prompts) == [alone(network, prompt) for prompt in prompts]


@pytest.mark.parametrize("kind", ["gpt_neo", "moshi", "gpt_neox_japanese"])
def test_what_a_tree_would_make_wrong_runs_on_another_engine(kind):
    name, changes = ODD[kind]
    model = member(tiny_network(name, **changes))
    assert not isinstance(engine_for(model, "tree", top=2, rows=3), TreeEngine)


@pytest.mark.parametrize("kind", ["llama with longrope", "mistral", "gemma3_text"])
def test_a_window_or_a_rope_border_alone_keeps_no_model_from_the_tree(kind):
    name, changes = ODD[kind]
    network = tiny_network(name, **changes)
    window = getattr(network.config, "sliding_window", None)
    assert way_of(member(network)).tree
    assert getattr(network.config, "sliding_window", None) == window


def breaking(network, breaks):
    """A network whose forward raises for ids of which `breaks` is true."""
    forward = network.forward

    def raising(input_ids, **given):
        if breaks(input_ids):
            raise RuntimeError("the ids are refused")
        return forward(input_ids=input_ids, **given)

    raising.__signature__ = inspect.signature(forward)
    network.forward = raising
    return network


def test_a_model_that_fails_in_a_batch_goes_on_row_by_row(caplog):
    network = tiny_network("llama")
    engine = engine_for(member(network), "tree", top=2, rows=3)
    breaking(network, lambda ids: len(ids) == 3)
    assert together(engine, PROMPTS) == [alone(network, prompt) for prompt in PROMPTS]
    assert "the slower reference engine runs it from now on" in caplog.text


def test_a_text_that_a_model_cannot_run_fails_alone():
    network = breaking(tiny_network("llama"), lambda ids: bool((ids == 63).any()))
    engine = engine_for(member(network), "tree", top=2, rows=3)
    prompts = [PROMPTS[0], [3, 63, 4], PROMPTS[2]]
    ended = dict(ends(engine, prompts))
    assert ended[1] == "the ids are refused"
    assert [ended[0], ended[2]] == [alone(network, prompts[0]), alone(network, prompts[2])]


def ends(engine, prompts):
    """The error or the ids of each prompt, by its number, as the scheduler runs them."""

    def program(prompt):
        sequence = engine.open(prompt)
        for _ in range(COUNT):
            yield [sequence.root]
            engine.commit(sequence.root.child(sequence.root.next.greedy))
        made[tuple(prompt)] = sequence.ids[sequence.prompt_length :]

    made = {}
    jobs = ((number, program(prompt)) for number, prompt in enumerate(prompts))
    for event in Scheduler(len(prompts)).run(jobs):
        if isinstance(event, Finished):
            yield event.example, event.error or made[tuple(prompts[event.example])]


@pytest.mark.soak
@pytest.mark.parametrize("kind", sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
def test_every_architecture_goes_on_as_it_does_alone(kind):
    try:
        network = tiny_network(kind)
    except ValueError as error:
        pytest.skip(f"no tiny one can be made: {error}")
    check(network, alone if kind in OTHERWISE else partial(continued, count=COUNT))
    assert line(kind, way_of(member(network))) in PAGE.read_text(encoding="utf-8")


@pytest.mark.soak
def test_most_architectures_are_among_those_that_can_be_made():
    made = 0
    for kind in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)[::4]:
        try:
            tiny_network(kind)
        except ValueError:
            continue
        made += 1
    assert made > len(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) // 4 * 0.7
