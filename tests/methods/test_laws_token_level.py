"""Laws that methods on the union of vocabularies must keep, whatever the models."""

import pytest

from adafuse.ensemble import Ensemble
from tests.methods.test_engines_agree import PROMPTS

METHODS = [
    ("unite", {}),
    ("unite", {"top_k": 1}),
    ("unite", {"duplicates": "keep", "normalise": "vocabulary", "commit": "first_token"}),
    ("gac", {}),
]


def texts(ensemble, method, **options):
    """The texts for the shared prompts."""
    results = ensemble.generate(PROMPTS, method=method, max_new_tokens=24, **options)
    return [result.text for result in results]


def assert_greedy(model, written):
    """These are the model's greedy texts, where those are text: decoders differ in how many bytes
    around one that makes no character they show as U+FFFD."""
    greedy = texts(Ensemble((model,), (1.0,)), "single")
    pairs = [(a, b) for a, b in zip(written, greedy, strict=True) if "\ufffd" not in b]
    assert len(pairs) >= 3
    assert [one for one, _ in pairs] == [other for _, other in pairs]


def spells_twice(model):
    """Whether different ids have the same bytes, as a byte token and a piece do; untrained models
    use both, and gac adds up what greedy decoding keeps apart."""
    known = [surface for surface in model.surfaces.of if surface]
    return len(set(known)) < len(known)


@pytest.mark.parametrize("ensemble", ["pair", "random_pair"])
@pytest.mark.parametrize(("method", "options"), METHODS)
def test_a_model_with_itself_gives_its_own_greedy_text(ensemble, method, options, request):
    untrained = ensemble == "random_pair"
    for model in request.getfixturevalue(ensemble).models:
        if not (untrained and method == "gac" and spells_twice(model)):
            twice = Ensemble((model, model), (1.0, 1.0))
            assert_greedy(model, texts(twice, method, **options))
            assert_greedy(model, texts(Ensemble((model,), (1.0,)), method, **options))


@pytest.mark.parametrize("ensemble", ["pair", "random_pair"])
@pytest.mark.parametrize(
    ("method", "options", "moved"),
    [
        ("unite", {"primary": 0}, {"primary": 1}),
        ("unite", {"primary": 1, "commit": "first_token"}, {"primary": 0, "commit": "first_token"}),
        ("gac", {}, {}),
        ("gac", {"threshold": 0.5, "gate": 0}, {"threshold": 0.5, "gate": 1}),
    ],
)
def test_the_order_of_the_models_changes_nothing_but_ties(
    ensemble, method, options, moved, request
):
    models = request.getfixturevalue(ensemble).models
    one = Ensemble(models, (1.0, 2.0))
    other = Ensemble(models[::-1], (2.0, 1.0))
    assert texts(one, method, **options) == texts(other, method, **moved)


@pytest.mark.parametrize("ensemble", ["pair", "random_pair"])
def test_a_model_that_decides_alone_writes_its_own_greedy_text(ensemble, request):
    models = request.getfixturevalue(ensemble).models
    for number, model in enumerate(models):
        if not (ensemble == "random_pair" and spells_twice(model)):
            weights = tuple(float(number == other) for other in range(len(models)))
            assert_greedy(model, texts(Ensemble(models, weights), "gac"))
            always = {"threshold": 0.0, "gate": number}
            assert_greedy(model, texts(Ensemble(models, (1.0, 1.0)), "gac", **always))
