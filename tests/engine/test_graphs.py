import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx
from transformers import AutoModelForCausalLM, LlamaConfig

from adafuse.engine import graphs, tree
from adafuse.engine.forward import Shape
from adafuse.engine.graphs import Graphs, bucket, capturable
from adafuse.engine.reference import ReferenceEngine
from adafuse.engine.tree import TreeEngine
from tests.engine.test_tree import PROMPTS, grow_and_commit, language_model
from tests.support.tiny import SLIDING, SMALL, random_llama

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def record_operations(compute):
    """Record the tensor operations of a computation, as a CUDA graph does.

    What Python decides is fixed when it is recorded; a replay only sees what lies in the tensors.
    """
    nothing = torch.zeros(1)
    operations = make_fx(lambda _: compute())(nothing)
    result = operations(nothing).clone()
    return lambda: result.copy_(operations(nothing)), result


def compute_again(compute):
    """Stand in for a recording where only the number of recordings counts; it takes no time."""
    result = compute().clone()
    return lambda: result.copy_(compute()), result


@pytest.fixture
def captured(monkeypatch, request):
    """Make tree engines replay recorded steps on the CPU; holds the `Graphs` that were made."""
    record, made = getattr(request, "param", record_operations), []

    def make(forward):
        made.append(Graphs(forward, lambda device: record))
        return made[-1]

    monkeypatch.setattr(tree, "capturable", lambda model: True)
    monkeypatch.setattr(tree, "Graphs", make)
    return made


@pytest.fixture(scope="module")
def model():
    return language_model(random_llama(700, seed=4))


def replayed(engine):
    """What an engine gives once all its shapes were seen often enough to be recorded."""
    for _ in range(4):
        seen = grow_and_commit(engine, PROMPTS)
    return seen


def test_replayed_steps_give_what_forwards_give(model, captured):
    seen = replayed(TreeEngine(model, top=2, rows=3))
    assert len(captured[0]._graphs) == 3
    plain = grow_and_commit(ReferenceEngine(model, top=2), PROMPTS)
    assert seen == pytest.approx(plain, abs=2e-5)


def test_rows_that_do_not_ask_are_left_alone(model, captured):
    seen = replayed(TreeEngine(model, top=2, rows=7))
    plain = grow_and_commit(ReferenceEngine(model, top=2), PROMPTS)
    assert seen == pytest.approx(plain, abs=2e-5)


@pytest.mark.parametrize("config", SLIDING.values(), ids=SLIDING)
def test_layers_with_a_sliding_window_can_be_recorded(config, captured):
    torch.manual_seed(0)
    sliding = language_model(AutoModelForCausalLM.from_config(config).eval())
    seen = replayed(TreeEngine(sliding, top=2, rows=3))
    assert len(captured[0]._graphs) == 3
    plain = grow_and_commit(ReferenceEngine(sliding, top=2), PROMPTS)
    assert seen == pytest.approx(plain, abs=2e-5)


def test_texts_and_scores_are_the_same_with_recorded_steps(random_pair, captured):
    prompts = [f"Question: who founded {town}?\nAnswer:" for town in ("Orrin", "Maim", "Ost")]
    options = {"method": "adafuse", "branching": 2, "max_new_tokens": 6, "batch_size": 2}
    with_graphs = random_pair.generate(prompts * 2, **options)
    assert sum(len(each._graphs) for each in captured) > 4
    plain = random_pair.generate(prompts * 2, **options, engine="reference")
    assert [each.text for each in with_graphs] == [each.text for each in plain]
    scores = [[c.nll for r in each.rounds for c in r.candidates] for each in with_graphs]
    expected = [[c.nll for r in each.rounds for c in r.candidates] for each in plain]
    for row, other in zip(scores, expected, strict=True):
        assert np.array(row) == pytest.approx(np.array(other), abs=1e-4)


def test_a_cache_that_moved_is_recorded_anew(model, captured):
    engine = TreeEngine(model, top=2, rows=1)
    outgrow(engine, ReferenceEngine(model, top=2), atol=2e-5)
    assert captured[0]._graphs


def outgrow(engine, plain, atol):
    """Write until the tensors of a cache must move, and compare what comes next."""
    sequence, other = engine.open([3] * 240), plain.open([3] * 240)
    for turn in range(40):
        for each in (sequence, other):
            tip = each.root.child(5 + turn)
            each.engine.evaluate([each.root, tip])
            each.engine.commit(tip)
    assert engine._cache.slots > 256
    assert torch.allclose(sequence.root.next.logprobs.cpu(), other.root.next.logprobs, atol=atol)


@pytest.mark.parametrize("captured", [compute_again], indirect=True, ids=["plainly"])
def test_the_oldest_recording_makes_room(model, captured, monkeypatch):
    monkeypatch.setattr(graphs, "MOST_GRAPHS", 1)
    replayed(TreeEngine(model, top=2, rows=3))
    assert len(captured[0]._graphs) == 1


def test_a_network_that_cannot_be_recorded_runs_as_it_is(model, caplog):
    def refuse(compute):
        raise RuntimeError("operation not permitted when stream is capturing")

    engine = TreeEngine(model, top=2, rows=3)
    engine._logits = Graphs(engine._logits, lambda device: refuse)
    seen = replayed(engine)
    assert seen == pytest.approx(grow_and_commit(ReferenceEngine(model, 2), PROMPTS), abs=2e-5)
    assert caplog.text.count("without CUDA graphs, which is slower: operation not permitted") == 1


def test_an_empty_recording_is_not_replayed(model, caplog):
    engine = TreeEngine(model, top=2, rows=3)
    engine._logits = Graphs(engine._logits, lambda device: lambda compute: (int, compute().clone()))
    seen = replayed(engine)
    assert seen == pytest.approx(grow_and_commit(ReferenceEngine(model, 2), PROMPTS), abs=2e-5)
    assert caplog.text.count("without CUDA graphs, which is slower: what was recorded comp") == 1


def test_a_recording_that_finds_no_memory_is_told(model):
    def refuse(compute):
        raise torch.OutOfMemoryError("CUDA out of memory")

    engine = TreeEngine(model, top=2, rows=3)
    engine._logits = Graphs(engine._logits, lambda device: refuse)
    with pytest.raises(torch.OutOfMemoryError):
        replayed(engine)


def test_models_on_the_cpu_run_as_they_are():
    assert not capturable(language_model(random_llama(700, seed=4), device="cpu"))


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 5000))
def test_a_bucket_holds_the_shape_and_is_one_of_few(rows, tokens, view):
    found = bucket(Shape(rows, tokens, view), 40, 5120)
    if found is None:
        assert tokens > 32 or 2 * rows * 2 * tokens > 256
        return
    assert found.rows >= rows and found.tokens >= tokens and found.view >= view
    assert found.rows in {1, 2, 4, 8, 16, 32, 40} and found.tokens in {1, 2, 4, 8, 16, 32}
    assert found.view < view + 512


KINDS = {"no window": LlamaConfig(**SMALL, vocab_size=700), **SLIDING}


@pytest.fixture(params=KINDS)
def placed(request):
    """One network on a CUDA device and on the CPU."""

    def on(device):
        torch.manual_seed(4)
        network = AutoModelForCausalLM.from_config(KINDS[request.param]).eval()
        return language_model(network, device=device)

    return on("cuda"), on("cpu")


@pytest.mark.gpu
@NO_GPU
def test_captured_graphs_give_what_forwards_give_on_a_cpu(placed):
    engine, plain = TreeEngine(placed[0], top=2, rows=3), ReferenceEngine(placed[1], top=2)
    assert capturable(engine.model)
    assert replayed(engine) == pytest.approx(grow_and_commit(plain, PROMPTS), abs=1e-3)
    assert engine._logits._graphs


@pytest.mark.gpu
@NO_GPU
def test_a_cache_that_moved_on_a_gpu_is_captured_anew(placed, caplog):
    engine, plain = TreeEngine(placed[0], top=2, rows=1), ReferenceEngine(placed[1], top=2)
    outgrow(engine, plain, atol=1e-3)
    assert engine._logits._graphs and not caplog.messages
