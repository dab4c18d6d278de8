import math

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    MambaConfig,
    MambaForCausalLM,
)
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from adafuse.engine import choice
from adafuse.engine import forward as grouping
from adafuse.engine.choice import engine_for, way_of
from adafuse.engine.node import ContextFullError
from adafuse.engine.reference import ReferenceEngine
from adafuse.engine.tree import TreeEngine
from adafuse.models.language_model import LoadedModel
from tests.conftest import DEVICE, toy_path
from tests.support.tiny import SLIDING, random_llama

ALIBI = {
    "mpt": {"d_model": 16, "n_layers": 2, "n_heads": 4, "initializer_range": 0.5},
    "bloom": {"hidden_size": 16, "n_layer": 2, "n_head": 4},
}


def language_model(network, context=400, device=DEVICE):
    """A network as a member of an ensemble, over the tokenizer of a toy model."""
    tokenizer = AutoTokenizer.from_pretrained(toy_path("llama"))
    ends = frozenset([tokenizer.eos_token_id])
    return LoadedModel(
        name="random",
        network=network.to(device),
        tokenizer=tokenizer,
        end_ids=ends,
        context=context,
    )


@pytest.fixture(scope="module")
def model():
    return language_model(random_llama(700, seed=4))


def grow_and_commit(engine, prompts):
    """Five rounds on each prompt: branches, a commit, a pending tip; all log-probabilities."""
    sequences = [engine.open(prompt) for prompt in prompts]
    seen = []
    for turn in range(5):
        engine.evaluate([sequence.root for sequence in sequences])
        chains = []
        for number, sequence in enumerate(sequences):
            tokens = [(7 * turn + 11 * number + k, 3 + k, 5) for k in range(3)]
            chains.append([sequence.root.chain(tokens[k][: 1 + (turn + k) % 3]) for k in range(3)])
        engine.evaluate([node for row in chains for chain in row for node in chain])
        seen += [node.logprob for row in chains for chain in row for node in chain]
        seen += [float(node.next.logprobs[9]) for row in chains for chain in row for node in chain]
        for number, row in enumerate(chains):
            tip = row[(turn + number) % 3][-1]
            engine.commit(tip.child(8) if turn % 2 else tip)
    for sequence in sequences:
        engine.close(sequence)
    return seen


PROMPTS = [list(range(3, 3 + n)) for n in (5, 60, 17)]


def test_ragged_rows_with_branches_and_commits_agree_with_full_forwards(model):
    tree = grow_and_commit(TreeEngine(model, top=2, rows=3), PROMPTS)
    plain = grow_and_commit(ReferenceEngine(model, top=2), PROMPTS)
    assert tree == pytest.approx(plain, abs=2e-5)


def test_the_output_layer_reads_only_nodes(model):
    """Not what pads their rows, nor the tokens between them."""
    rows, head = [], model.network.get_output_embeddings()
    hook = head.register_forward_hook(
        lambda _, given, logits: rows.append(len(logits.flatten(0, -2)))
    )
    engine = TreeEngine(model, top=2, rows=3)
    first, second, third = sequences = [engine.open(prompt) for prompt in PROMPTS]
    engine.evaluate([sequence.root for sequence in sequences])
    assert sum(rows) == 3
    rows.clear()
    engine.evaluate([*first.root.chain([5, 6, 7]), second.root.child(5), third.root.child(6)])
    assert sum(rows) == 5
    hook.remove()
    assert not head._forward_pre_hooks


def test_a_row_is_as_good_as_new_for_the_next_sequence(model):
    engine = TreeEngine(model, top=2, rows=3)
    first = grow_and_commit(engine, PROMPTS)
    assert grow_and_commit(engine, PROMPTS[::-1]) != first
    assert grow_and_commit(engine, PROMPTS) == pytest.approx(first, abs=2e-5)


def test_prompts_fed_in_pieces_give_the_same(model, monkeypatch):
    whole = grow_and_commit(TreeEngine(model, top=2, rows=3), PROMPTS)
    monkeypatch.setattr(grouping, "PIECE", 7)
    monkeypatch.setattr(grouping, "FORWARD_COST", {torch.device(DEVICE).type: 4})
    monkeypatch.setattr(grouping, "TOKEN_BUDGET", 14)
    assert grow_and_commit(TreeEngine(model, top=2, rows=3), PROMPTS) == pytest.approx(
        whole, abs=2e-5
    )


def test_nothing_is_computed_twice(model):
    engine = TreeEngine(model, top=2, rows=1)
    sequence = engine.open([3, 4, 5])
    engine.evaluate([sequence.root])
    chain = sequence.root.chain((6, 7))
    engine.evaluate(chain)
    engine.evaluate(chain)
    engine.commit(chain[-1])
    assert sequence.root.next is not None
    engine.evaluate([sequence.root])
    assert sequence.forwards == 2
    assert sequence.cached == len(sequence.ids) == 5


def grow_and_keep(engine):
    """Two rows grow branches, and commit steps of one, without a forward in between."""
    sequences = [engine.open(prompt) for prompt in PROMPTS[:2]]
    seen = []
    for sequence in sequences:
        engine.evaluate(
            [sequence.root, *sequence.root.chain((6, 12, 13)), *sequence.root.chain((9,))]
        )
        chain = sequence.root.chain((6, 7, 8, 9, 10, 11))
        engine.evaluate(chain)
        engine.evaluate(chain[3].chain((20, 21)))
        for index in (0, 2):
            engine.commit(chain[index])
        assert all(node.next is not None for node in sequence.root.subtree())
        seen.append(chain)
    for chain in seen:
        engine.commit(chain[3])
    last = [node for chain in seen for node in (chain[5].child(3), chain[3].children[20].child(4))]
    engine.evaluate(last)
    found = [value for node in last for value in (node.logprob, float(node.next.logprobs[9]))]
    for sequence in sequences:
        engine.close(sequence)
    return found


def test_what_is_below_a_committed_node_stays(model):
    engine = TreeEngine(model, top=2, rows=2)
    plain = grow_and_keep(ReferenceEngine(model, top=2))
    assert grow_and_keep(engine) == pytest.approx(plain, abs=2e-5)
    assert grow_and_keep(engine) == pytest.approx(plain, abs=2e-5)


def test_the_cache_grows_with_the_text(model):
    engine = TreeEngine(model, top=2, rows=1)
    sequence = engine.open([3] * 250)
    engine.evaluate([sequence.root])
    chain = sequence.root.chain((6,) * 20)
    engine.evaluate(chain)
    plain = ReferenceEngine(model, top=2)
    other = plain.open([3] * 250)
    plain.evaluate([other.root])
    expected = other.root.chain((6,) * 20)
    plain.evaluate(expected)
    assert [n.logprob for n in chain] == pytest.approx([n.logprob for n in expected], abs=2e-5)


def test_values_that_are_not_finite_do_not_reach_the_next_sequence(model):
    engine = TreeEngine(model, top=2, rows=1)
    sequence = engine.open([3, 4])
    engine.evaluate([sequence.root])
    weight = model.network.model.embed_tokens.weight
    kept = weight[9].clone()
    with torch.no_grad():
        weight[9] = float("nan")
    engine.evaluate(sequence.root.chain((9, 10)))
    with torch.no_grad():
        weight[9] = kept
    engine.close(sequence)
    following = engine.open([3])
    engine.evaluate([following.root])
    assert torch.isfinite(following.root.next.logprobs).all()


def test_values_that_are_not_finite_do_not_reach_other_branches():
    network = random_llama(700, seed=4)
    with torch.no_grad():
        network.get_input_embeddings().weight[9] = math.nan
    engine = TreeEngine(language_model(network), top=2, rows=2)
    sequence = engine.open([3, 4])
    odd, chain = sequence.root.chain((9, 5)), sequence.root.chain((5, 6, 7))
    engine.evaluate([sequence.root, *odd, *chain])
    assert [math.isnan(n.logprob) for n in (*odd, *chain)] == [False, True, False, False, False]
    assert all(math.isnan(node.next.margin) for node in odd)
    engine.commit(chain[0])
    last = sequence.root.chain((6, 8, 5))[-1]
    engine.evaluate(last.path())
    seen = [node.logprob for node in last.path()]
    vectors = network(torch.tensor([[3, 4, 5, 6, 8, 5]], device=DEVICE)).logits[0].detach()
    vectors = vectors[:, : engine.model.vocabulary].log_softmax(dim=-1)
    assert seen == pytest.approx([float(vectors[n, id]) for n, id in ((2, 6), (3, 8), (4, 5))])


def test_a_token_behind_the_context_is_refused(model):
    engine = TreeEngine(model, top=2, rows=1)
    sequence = engine.open([3] * 399)
    engine.evaluate([sequence.root])
    tip = sequence.root.child(4)
    with pytest.raises(ContextFullError):
        tip.child(5)


@pytest.mark.parametrize("config", SLIDING.values(), ids=SLIDING)
def test_layers_with_a_sliding_window_see_no_further(config):
    torch.manual_seed(0)
    sliding = language_model(AutoModelForCausalLM.from_config(config).eval())
    tree = grow_and_commit(TreeEngine(sliding, top=2, rows=3), PROMPTS)
    plain = grow_and_commit(ReferenceEngine(sliding, top=2), PROMPTS)
    assert tree == pytest.approx(plain, abs=2e-5)


def test_a_network_that_always_makes_all_logits_gives_the_reference_engine_the_same(model):
    network = random_llama(700, seed=4)
    some = network.forward
    network.forward = lambda input_ids, use_cache: some(input_ids=input_ids, use_cache=use_cache)
    every = grow_and_commit(ReferenceEngine(language_model(network), top=2), PROMPTS)
    wanted = grow_and_commit(ReferenceEngine(model, top=2), PROMPTS)
    assert every == pytest.approx(wanted, abs=2e-5)


def test_a_model_without_a_usable_cache_runs_on_the_reference_engine(caplog, monkeypatch):
    config = MambaConfig(vocab_size=700, hidden_size=16, num_hidden_layers=2, state_size=4)
    recurrent = language_model(MambaForCausalLM(config).eval())
    monkeypatch.setattr(choice, "READINGS", ())
    assert isinstance(engine_for(recurrent, "tree", top=2, rows=2), ReferenceEngine)
    assert "cannot be run with a cache (layers of type linear_attention)" in caplog.text


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["mpt", "bloom"])
def test_positions_that_come_from_the_mask_are_noticed(name, dtype):
    config = AutoConfig.for_model(name, vocab_size=700, **ALIBI[name])
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(config).eval()
    assert "positions" in way_of(language_model(network.to(dtype))).obstacles[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounding_of_large_logits_is_no_obstacle(dtype):
    network = random_llama(700, seed=4, hidden_size=64, num_hidden_layers=8)
    with torch.no_grad():
        network.get_output_embeddings().weight.mul_(100)
    assert way_of(language_model(network.to(dtype))).tree


def test_the_toy_architectures_can_be_fed_trees(quartet):
    assert all(way_of(member).tree for member in quartet.models)


def test_eager_attention_gives_the_same(model):
    network = random_llama(700, seed=4)
    network.set_attn_implementation("eager")
    eager = grow_and_commit(TreeEngine(language_model(network), top=2, rows=3), PROMPTS)
    assert eager == pytest.approx(
        grow_and_commit(TreeEngine(model, top=2, rows=3), PROMPTS), abs=2e-5
    )


def test_flex_attention_is_fed_no_tree(monkeypatch):
    for known in (ALL_ATTENTION_FUNCTIONS, ALL_MASK_ATTENTION_FUNCTIONS):
        monkeypatch.setitem(known, "flex_attention", known["sdpa"])  # nothing to compile
    network = random_llama(700, seed=4)
    network.config._attn_implementation = "flex_attention"
    way = way_of(language_model(network))
    assert way.layout is not None
    assert way.obstacles == ("flex_attention takes no mask of a tree",)


def grown(kind, model):
    """An engine with a sequence of the ids 3 to 5, and a chain 6, 7, 8 that was run behind it."""
    engine = kind(model, 2, 1) if kind is TreeEngine else kind(model, 2)
    sequence = engine.open([3, 4, 5])
    chain = sequence.root.chain((6, 7, 8))
    engine.evaluate([sequence.root, *chain])
    return engine, sequence, chain


@pytest.mark.parametrize("kind", [TreeEngine, ReferenceEngine])
def test_a_released_node_is_run_again_when_a_child_needs_its_row(model, kind):
    engine, _, chain = grown(kind, model)
    expected = float(chain[1].next.logprobs[9])
    for node in chain[:2]:
        node.release()
    assert chain[1].released
    other = chain[1].child(9)
    engine.evaluate([other])
    assert other.logprob == pytest.approx(expected, abs=2e-5)
    assert chain[0].released
    assert not chain[1].released


@pytest.mark.parametrize("kind", [TreeEngine, ReferenceEngine])
def test_a_released_node_can_be_committed_and_gone_on_from(model, kind):
    engine, sequence, chain = grown(kind, model)
    chain[1].release()
    engine.commit(chain[1])
    other = sequence.root.chain((9, 10))
    engine.evaluate(other)
    plain = ReferenceEngine(model, top=2)
    fresh = plain.open([3, 4, 5, 6, 7])
    expected = fresh.root.chain((9, 10))
    plain.evaluate([fresh.root, *expected])
    assert [n.logprob for n in other] == pytest.approx([n.logprob for n in expected], abs=2e-5)
