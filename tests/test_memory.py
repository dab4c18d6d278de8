"""What is held while many prompts are decoded does not grow with their number."""

import gc

import pytest
import torch

KINDS = (torch.Tensor, torch.nn.Parameter)


def storages():
    """The bytes of each storage of a tensor that is alive."""
    gc.collect()
    tensors = (thing for thing in gc.get_objects() if type(thing) in KINDS)
    found = (tensor.untyped_storage() for tensor in tensors)
    return {storage.data_ptr(): storage.nbytes() for storage in found}


@pytest.fixture
def bytes_held(pair):
    """Say how many bytes all tensors take; those of the models are looked up once."""
    before = storages()
    gc.freeze()  # hides what exists, which is most, from gc.collect and gc.get_objects
    yield lambda: sum((before | storages()).values())
    gc.unfreeze()


def most_held(bytes_held, pair, method, prompts, **settings):
    """The most that was held at the end of any example."""
    return max(bytes_held() for _ in pair.stream(prompts, method=method, **settings))


PROMPTS = [f"Question: who founded {town}?\nAnswer:" for town in ("Orrin", "Maim", "Ost", "Tal")]


@pytest.mark.parametrize("method", ["adafuse", "unite", "rerank", "specfuse"])
def test_memory_does_not_grow_with_the_number_of_examples(bytes_held, pair, method):
    settings = {"max_new_tokens": 12, "batch_size": 2}
    few = most_held(bytes_held, pair, method, PROMPTS * 2, **settings)
    many = most_held(bytes_held, pair, method, PROMPTS * 5, **settings)
    assert many <= 1.02 * few


def test_an_answer_that_is_not_committed_holds_few_rows_of_log_probabilities(bytes_held, pair):
    row = 4 * max(model.vocabulary for model in pair.models)
    short, long = (
        most_held(bytes_held, pair, "rerank", PROMPTS[:1], max_new_tokens=n, batch_size=1)
        for n in (8, 64)
    )
    assert long - short < 20 * row
