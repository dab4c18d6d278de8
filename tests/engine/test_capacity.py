"""How many examples fit, on pretended devices."""

import pytest
import torch

from adafuse.engine.tree import TreeEngine
from adafuse.errors import UserError
from adafuse.models import memory
from adafuse.models.language_model import demands
from adafuse.models.memory import TREE_NODES, rows_that_fit

CPU, ONE, TWO = torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 1)


@pytest.fixture
def free(monkeypatch):
    """Free bytes by device, all of which may be taken."""
    bytes_by_device = {}
    monkeypatch.setattr(memory, "free_memory", bytes_by_device.__getitem__)
    monkeypatch.setattr(memory, "SHARE", 1.0)
    return bytes_by_device


def test_models_on_one_device_share_its_memory_and_the_fullest_device_decides(free):
    free |= {ONE: 1000, TWO: 300}
    assert rows_that_fit([(ONE, 100)], 50) == 10
    assert rows_that_fit([(ONE, 100), (ONE, 100)], 50) == 5
    assert rows_that_fit([(ONE, 100), (TWO, 100)], 50) == 3


def test_no_more_rows_than_examples_or_than_are_of_use(free):
    free[CPU] = 10**9
    assert rows_that_fit([(CPU, 1)], 3) == 3
    assert rows_that_fit([(CPU, 1)], 10**6) == memory.MOST_ROWS
    assert rows_that_fit([], 0) == 1


def test_not_even_one_row_is_one_sentence(free):
    free[ONE] = 99
    with pytest.raises(UserError, match=r"one example needs 0\.00 GiB on cuda:0 .*; lower max_new"):
        rows_that_fit([(ONE, 100)], 1)


def test_the_demand_is_that_of_the_cache_and_of_the_log_probabilities(pair):
    model = pair.models[0]
    longest = 200
    engine = TreeEngine(model, top=2, rows=1)
    sequence = engine.open(list(range(5, 5 + longest)))
    engine.evaluate([sequence.root])
    held = sum(tensor.element_size() * tensor.numel() for tensor in engine._cache.tensors())
    per_slot = held / engine._cache.slots
    vectors = TREE_NODES * 4 * model.vocabulary
    slots = longest + TREE_NODES, model.context + TREE_NODES
    assert demands(model, longest) == [(model.device, per_slot * slots[0] + vectors)]
    assert demands(model, 10**9) == [(model.device, per_slot * slots[1] + vectors)]


def test_a_spread_model_needs_memory_where_its_layers_are(pair, monkeypatch):
    model = pair.models[0]
    ((_, whole),) = demands(model, 100)
    vectors = TREE_NODES * 4 * model.vocabulary
    per_layer = (whole - vectors) // 4
    monkeypatch.setattr(
        "adafuse.models.language_model.layer_devices", lambda *_: [ONE, TWO, TWO, TWO]
    )
    found = dict(demands(model, 100))
    assert found == {CPU: vectors, ONE: per_layer, TWO: 3 * per_layer}


def test_auto_gives_the_same_as_a_number(pair):
    prompts = ["Question: Who founded Orrin?\nAnswer:", "Question: 3 plus 4?\n"]
    auto = pair.generate(prompts, batch_size="auto", max_new_tokens=6)
    assert [r.text for r in auto] == [r.text for r in pair.generate(prompts, max_new_tokens=6)]
    with pytest.raises(UserError, match="batch_size"):
        pair.generate(prompts, batch_size="most")
