"""Memory that runs out: half as many examples at a time, once, and then a sentence."""

import gc
import weakref

import pytest
import torch

from adafuse.engine import tree
from adafuse.engine.choice import engine_for
from adafuse.engine.scheduler import Scheduler, release
from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.models.language_model import load_models
from adafuse.models.spec import model_specs
from tests.conftest import toy_path

TOYS = ("mistral", "llama")
PROMPTS = [f"Question: {n} plus {n + 1}?\nAnswer:" for n in range(8)]
ERRORS = (
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore"),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 12 bytes"),
)


@pytest.fixture
def room(pair, monkeypatch):
    """Lets the first model take `room.rows` rows in a forward, and notes what it was given."""
    engine_for(pair.models[0], "tree", top=2, rows=1)  # is tried before there is too little
    forward, room = pair.models[0].network.forward, type("Room", (), {"rows": 99, "seen": []})

    def limited(*arguments, **named):
        rows = named["input_ids"].shape[0]
        room.seen.append(rows)
        if rows > room.rows:
            raise type(room.error)(*room.error.args)  # one of its own: it holds its frames
        return forward(*arguments, **named)

    room.error = ERRORS[0]
    monkeypatch.setattr(pair.models[0].network, "forward", limited)
    return room


def settings(rows):
    return {"batch_size": rows, "max_new_tokens": 6}


@pytest.mark.parametrize("error", ERRORS)
def test_half_as_many_examples_go_on_and_it_is_said(pair, room, caplog, error):
    wanted = pair.generate(PROMPTS, **settings(4))
    room.rows, room.error = 2, error
    room.seen.clear()
    with caplog.at_level("WARNING"):
        indices, results = zip(*pair.stream(PROMPTS, **settings(4)), strict=True)
    assert max(room.seen) > 2 and max(room.seen[room.seen.index(max(room.seen)) + 1 :]) <= 2
    assert sorted(indices) == list(range(len(PROMPTS)))
    assert [r.text for _, r in sorted(zip(indices, results, strict=True))] == [
        result.text for result in wanted
    ]
    (said,) = caplog.messages
    assert said.startswith("4 examples at a time are too many for the memory (")
    assert said.endswith("; going on with 2 at a time")


def test_rows_that_ended_before_are_not_decoded_again(pair, room):
    ended = []
    for index, _ in pair.stream(PROMPTS, **settings(4)):
        ended.append(index)
        if len(ended) == 3:
            room.rows = 2
    assert sorted(ended) == list(range(len(PROMPTS)))


@pytest.mark.parametrize(("rows", "fit", "told"), [(4, 1, 2), (1, 0, 1)])
def test_what_does_not_help_is_one_sentence(pair, room, rows, fit, told):
    room.rows = fit
    with pytest.raises(
        UserError, match=rf"^{told} examples at a time are too many .*; lower batch"
    ):
        pair.generate(PROMPTS, **settings(rows))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_that_is_full_goes_on_with_half_as_many(caplog):
    models = load_models(model_specs(map(toy_path, TOYS), device="cuda:0", dtype="float32"))
    card, prompts = models[0].device, [f"{n} {'the town of Orrin ' * 200}" for n in range(32)]
    before = torch.cuda.memory_allocated(card)
    wanted = Ensemble(models).generate(prompts, **settings(32))
    taken = torch.cuda.max_memory_allocated(card) - before
    release()
    _, most = torch.cuda.mem_get_info(card)
    torch.cuda.set_per_process_memory_fraction((before + 0.85 * taken) / most, card)
    try:
        results = Ensemble(models).generate(prompts, **settings(32))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, card)
    assert [result.text for result in results] == [result.text for result in wanted]
    assert "32 examples at a time are too many for the memory (" in caplog.text


def test_memory_that_runs_out_in_one_example_is_no_fault_of_that_example(pair, monkeypatch):
    opened, first = tree.TreeEngine.open, iter([True])

    def fail_once(engine, ids):
        if next(first, False):
            raise ERRORS[0]
        return opened(engine, ids)

    monkeypatch.setattr(tree.TreeEngine, "open", fail_once)
    results = pair.generate(PROMPTS[:2], **settings(2))
    assert [result.error for result in results] == [None, None]


def test_the_engines_that_were_too_large_are_gone_before_the_next_ones_come(
    pair, room, monkeypatch
):
    built, alive, begin = [], [], tree.TreeEngine.__init__

    def note(engine, *arguments, **named):
        gc.collect()
        alive.append(sum(each() is not None for each in built))
        begin(engine, *arguments, **named)
        built.append(weakref.ref(engine))

    monkeypatch.setattr(tree.TreeEngine, "__init__", note)
    room.rows = 2
    pair.generate(PROMPTS, **settings(4))
    assert len(alive) >= 4 and alive[-2] == alive[0] == 0


def test_other_errors_of_a_forward_are_not_taken_for_it():
    def broken():
        raise RuntimeError("shapes do not match")
        yield

    with pytest.raises(RuntimeError, match="shapes"):
        list(Scheduler(2).run(broken()))
