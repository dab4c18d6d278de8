"""What is held while many prompts are decoded does not grow with their number."""

import gc

import pytest
import torch


def bytes_held():
    """The bytes of all tensors that are alive, each storage once."""
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if type(thing) in (torch.Tensor, torch.nn.Parameter):
            storage = thing.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def most_held(pair, method, prompts, **settings):
    """The most that was held at the end of any example."""
    return max(bytes_held() for _ in pair.stream(prompts, method=method, **settings))


PROMPTS = [f"Question: who founded {town}?\nAnswer:" for town in ("Orrin", "Maim", "Ost", "Tal")]


@pytest.mark.parametrize("method", ["adafuse", "unite", "rerank", "specfuse"])
def test_memory_does_not_grow_with_the_number_of_examples(pair, method):
    settings = {"max_new_tokens": 12, "batch_size": 2}
    few = most_held(pair, method, PROMPTS * 2, **settings)
    many = most_held(pair, method, PROMPTS * 8, **settings)
    assert many <= 1.02 * few


def test_an_answer_that_is_not_committed_holds_few_rows_of_log_probabilities(pair):
    row = 4 * max(model.vocabulary for model in pair.models)
    short, long = (
        most_held(pair, "rerank", PROMPTS[:1], max_new_tokens=n, batch_size=1) for n in (8, 64)
    )
    assert long - short < 20 * row
