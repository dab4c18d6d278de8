"""Laws that several methods keep."""

import pytest

from adafuse.ensemble import Ensemble
from tests.conftest import toy_path
from tests.methods.test_engines_agree import PROMPTS as ALL

PROMPTS = ALL[:4]

# Greedy drafts of one model twice are one candidate, so `specfuse` keeps the law, too; where it
# cuts a draft, the model goes on as it would have.
GREEDY = [
    ("adafuse", {}),
    ("fixed_length", {"words": 2}),
    ("sweetspan", {}),
    ("cool_fusion", {}),
    ("cool_fusion", {"segments": "shortest"}),
    ("cool_fusion", {"rerank": True}),
    ("specfuse", {}),
    ("specfuse", {"window": 3, "hedge": 0.5, "votes": "mean_nll"}),
    ("rerank", {}),
]
SYMMETRIC = [
    *GREEDY,
    ("sweetspan", {"filter_ratio": 1.5}),
    ("rerank", {"score": "mean_perplexity"}),
]


@pytest.fixture(scope="module", params=["llama", "mistral"])
def model(request):
    """One toy model."""
    return Ensemble.from_pretrained([toy_path(request.param)], device="cpu")


@pytest.mark.parametrize(("method", "options"), GREEDY)
def test_a_model_with_itself_gives_its_own_greedy_text(model, method, options):
    twice = Ensemble(model.models * 2, (1.0, 1.0))
    limits = {"max_new_tokens": 48, "stop": ["\n\n", "Question"]}
    greedy = model.generate(PROMPTS, method="single", **limits)
    assert {result.stop_reason for result in greedy} & {"eos", "stop"}
    for one, other in zip(
        twice.generate(PROMPTS, method=method, **options, **limits), greedy, strict=True
    ):
        if other.stop_reason != "length":
            assert (one.text, one.stop_reason) == (other.text, other.stop_reason)
        else:
            assert one.text.startswith(other.text)


@pytest.mark.parametrize("ensemble", ["pair", "random_pair"])
@pytest.mark.parametrize(("method", "options"), SYMMETRIC)
def test_the_order_of_the_models_changes_nothing_but_ties(ensemble, method, options, request):
    ensemble = request.getfixturevalue(ensemble)
    swapped = Ensemble(ensemble.models[::-1], ensemble.weights[::-1])
    one, other = (
        e.generate(PROMPTS, method=method, max_new_tokens=16, **options)
        for e in (ensemble, swapped)
    )
    assert [result.text for result in one] == [result.text for result in other]


@pytest.mark.parametrize(("method", "options"), GREEDY)
def test_one_model_is_an_ensemble_that_writes_its_own_greedy_text(model, method, options):
    limits = {"max_new_tokens": 20, "stop": ["\n"]}
    greedy = model.generate(PROMPTS, method="single", **limits)
    for one, other in zip(
        model.generate(PROMPTS, method=method, **options, **limits), greedy, strict=True
    ):
        assert one.text.startswith(other.text)
