"""Laws that methods on the union of vocabularies must keep, whatever the models."""

from dataclasses import replace

import pytest

from adafuse.engine.reference import ReferenceEngine
from adafuse.ensemble import Ensemble
from tests.methods.test_engines_agree import PROMPTS as ALL

PROMPTS = ALL[1:5]

METHODS = [
    ("unite", {}),
    ("unite", {"duplicates": "keep", "normalise": "vocabulary", "commit": "first_token"}),
    ("gac", {}),
    ("unite", {"positions": "stable"}),
    ("gac", {"positions": "stable"}),
]


def texts(ensemble, method, **options):
    """The texts for the shared prompts."""
    results = ensemble.generate(PROMPTS, method=method, max_new_tokens=12, **options)
    return [result.text for result in results]


@pytest.fixture
def ids(monkeypatch):
    """Decodes the shared prompts: for each model, the ids that it holds behind every prompt."""
    closed = []
    monkeypatch.setattr(ReferenceEngine, "close", lambda self, sequence: closed.append(sequence))

    def decode(models, weights, method, **options):
        closed.clear()
        plain = {"engine": "reference", "batch_size": 1}
        texts(Ensemble(models, weights), method, **plain, **options)
        generated = [sequence.ids[sequence.prompt_length :] for sequence in closed]
        return [generated[number :: len(models)] for number in range(len(models))]

    return decode


def spells_twice(model):
    """Whether different ids have the same bytes, as a byte token and a piece do; untrained models
    use both, and gac adds up what greedy decoding keeps apart."""
    known = [surface for surface in model.token_bytes.of if surface]
    return len(set(known)) < len(known)


@pytest.mark.parametrize("ensemble", ["pair", "random_pair"])
@pytest.mark.parametrize(("method", "options"), METHODS)
def test_a_model_with_itself_writes_its_own_greedy_ids(ensemble, method, options, request, ids):
    for model in request.getfixturevalue(ensemble).models:
        if not (ensemble == "random_pair" and method == "gac" and spells_twice(model)):
            greedy = ids((model,), (1.0,), "single")
            assert ids((model, model), (1.0, 1.0), method, **options) == greedy * 2


@pytest.mark.parametrize(("method", "options"), METHODS)
@pytest.mark.parametrize("number", [0, 1])
def test_a_model_with_itself_writes_its_own_greedy_text_behind_its_template(
    pair, method, options, number
):
    model = replace(pair.models[number], chat=True)
    greedy = texts(Ensemble((model,), (1.0,)), "single")
    assert any(greedy)
    assert texts(Ensemble((model, model), (1.0, 1.0)), method, **options) == greedy


@pytest.mark.parametrize("ensemble", ["pair", "random_pair"])
@pytest.mark.parametrize(
    ("method", "options", "moved"),
    [
        ("unite", {"primary": 0}, {"primary": 1}),
        ("unite", {"primary": 1, "commit": "first_token"}, {"primary": 0, "commit": "first_token"}),
        ("gac", {}, {}),
        ("gac", {"threshold": 0.5, "primary": 0}, {"threshold": 0.5, "primary": 1}),
        ("unite", {"positions": "stable"}, {"positions": "stable", "primary": 1}),
        ("gac", {"positions": "stable"}, {"positions": "stable"}),
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
def test_a_model_that_decides_alone_writes_its_own_greedy_ids(ensemble, request, ids):
    models = request.getfixturevalue(ensemble).models
    for number, model in enumerate(models):
        if not (ensemble == "random_pair" and spells_twice(model)):
            (greedy,) = ids((model,), (1.0,), "single")
            weights = tuple(float(number == other) for other in range(len(models)))
            always = {"threshold": 0.0, "primary": number}
            for found in (
                ids(models, weights, "gac")[number],
                ids(models, (1.0, 1.0), "gac", **always)[number],
            ):
                for own, alone in zip(found, greedy, strict=True):
                    assert own and own == alone[: len(own)]
