"""Every method gives the same on the tree engine, in any batch, and on the reference engine.

The whole list of settings runs on models that disagree everywhere; the others are asked a few, and
all in the soak suite or in the sweep.
"""

import pytest

from tests.conftest import SHARED, ensemble_of, toy_path
from tests.support.architectures import STATEFUL, stateful_model
from tests.support.results import assert_same
from tests.support.tiny import random_model

PROMPTS = [
    "Question: Who founded the town of Orrin?\nAnswer:",
    "Question: Mira has 7 apples and buys 5 more.\nLet's think step by step\n",
    "Translate English to German.\nQuestion: the big dog sees a red house\nAnswer:",
    "Wir haben jetzt 4 Monate alte Mäuse, „die Diabetes hatten“ – 漢字 🙂",
    "a",
    "The quick brown fox\n\njumps over\tthe lazy dog. " * 4,
]
METHODS = [
    ("adafuse", {}),
    ("adafuse", {"branching": 3}),
    ("adafuse", {"tau": 0.2, "max_words": 2, "fusion": "mixture"}),
    ("adafuse", {"tau": 1.0, "branching": 2, "fusion": "most_confident"}),
    ("fixed_length", {"words": 1}),
    ("fixed_length", {"words": 3}),
    ("beam_scaling", {"width": 3}),
    ("unite", {}),
    ("unite", {"duplicates": "keep", "normalise": "vocabulary", "commit": "first_token"}),
    ("gac", {}),
    ("gac", {"threshold": 0.5}),
    ("deepen", {}),
    ("deepen", {"main": 1}),
    ("bytewise", {}),
    ("sweetspan", {}),
    ("cool_fusion", {"segments": "shortest", "rerank": True}),
    ("cool_fusion", {}),
    ("specfuse", {"hedge": 0.5}),
    ("specfuse", {"window": 4, "votes": "mean_nll", "sampling": True}),
    ("rerank", {}),
    ("specfuse", {"window": 4, "exit_temperature": 0.02}),
    ("adafuse", {"margin": "word", "branching": 2}),
    ("adafuse", {"ask": "unsure", "sure": 0.2, "leader": 1}),
    ("fixed_length", {"ask": "unsure", "sure": 0.1, "words": 2}),
    ("unite", {"positions": "stable", "primary": 1}),
    ("gac", {"positions": "stable"}),
    ("adafuse", {"weighting": "prompt", "branching": 2}),
    ("unite", {"weighting": "consistency"}),
    ("gac", {"weighting": "prompt", "mean": "geometric"}),
    ("bytewise", {"mean": "geometric"}),
    ("adafuse", {"disagreement": "bytes"}),
    ("adafuse", {"disagreement": "bytes", "gap": 1.0, "branching": 2}),
    ("adafuse", {"disagreement": "pool", "branching": 3}),
]
MARKS = dict.fromkeys(STATEFUL.keys() - {"lfm2"}, pytest.mark.soak)
FEW = (0, 8, 17)
"""Settings of the quick suite on the trained pair: one of spans, of tokens, and of drafts."""


def mostly(mark, settings, quick):
    """The settings as parameters; all but those of the quick numbers are marked."""
    return [
        pytest.param(*each, marks=() if number in quick else mark)
        for number, each in enumerate(settings)
    ]


TOY = ("mistral", "llama", "qwen3", "internlm3")

# AdamW makes steps of up to full size of small gradients, and so of their rounding errors.
TOLERANCE = {"deepen": 1e-3}
BLENDER = {"ranker": toy_path("pair_ranker"), "fuser": toy_path("gen_fuser"), "fused_tokens": 16}
SHORT = {"max_new_tokens": 24, "stop": ["\n\n"]}


def check(ensemble, method, options, prompts=PROMPTS, **limits):
    """Decode on both engines and compare."""
    settings = {"method": method, **options, **(SHORT | limits)}
    plain = ensemble.generate(prompts, engine="reference", batch_size=1, **settings)
    assert any(result.rounds for result in plain)
    for batch_size in (1, 8):
        tree = ensemble.generate(prompts, engine="tree", batch_size=batch_size, **settings)
        assert_same(tree, plain, nll=TOLERANCE.get(method, 1e-4))


@pytest.mark.parametrize(("method", "options"), mostly(pytest.mark.soak, METHODS, FEW))
def test_trained_models(pair, method, options):
    check(pair, method, options)


@pytest.mark.parametrize(("method", "options"), METHODS)
def test_models_that_disagree_everywhere(random_pair, method, options):
    check(random_pair, method, options, PROMPTS[2:], max_new_tokens=8)


@pytest.mark.parametrize(
    ("method", "options"),
    mostly(pytest.mark.sweep, [METHODS[1], *METHODS[5:], ("deepen", {"main": 3})], quick=(5,)),
)
def test_four_architectures(quartet, method, options):
    check(quartet, method, options, PROMPTS[2:], max_new_tokens=12)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=MARKS.get(kind, ())) for kind in sorted(STATEFUL)]
)
def test_networks_with_states(kind, tmp_path):
    path = stateful_model(kind, toy_path("mistral"), tmp_path / kind)
    beside = ensemble_of(path, toy_path("llama"))
    check(beside, *METHODS[1], PROMPTS[2:4], max_new_tokens=6)


@pytest.mark.sweep
@pytest.mark.parametrize(("method", "options"), METHODS)
@pytest.mark.parametrize("kind", sorted(STATEFUL))
def test_networks_with_states_and_every_method(kind, method, options, tmp_path):
    path = stateful_model(kind, toy_path("mistral"), tmp_path / kind)
    beside = ensemble_of(path, toy_path("llama"))
    check(beside, method, options, PROMPTS[2:], max_new_tokens=8)


@pytest.mark.parametrize("rank_only", [True, False])
def test_blending_answers(pair, rank_only):
    check(pair, "llm_blender", BLENDER | {"rank_only": rank_only}, PROMPTS[2:], max_new_tokens=12)


@pytest.mark.parametrize("name", mostly(pytest.mark.soak, [[name] for name in TOY], quick=(0,)))
def test_single_models(name):
    ensemble = ensemble_of(toy_path(name))
    check(ensemble, "single", {}, PROMPTS[2:])
    check(ensemble, "self_consistency", {"k": 3, "top_p": 0.9}, PROMPTS[2:])


@pytest.fixture(
    scope="module",
    params=[("llama-3.1-instruct", "mistral-7b-instruct-v0.3"), ("qwen2.5-qwen3", "gpt2")],
    ids="+".join,
)
def real_tokenizers(request, tmp_path_factory):
    """Two models with random weights over the tokenizers of real ones."""
    folders = [SHARED / "tokenizers" / name for name in request.param]
    if not all(folder.is_dir() for folder in folders):
        pytest.skip(f"the real tokenizers are not at {folders[0].parent}")
    out = tmp_path_factory.mktemp("weights")
    paths = [random_model(folder, out / folder.name, seed=n) for n, folder in enumerate(folders)]
    return ensemble_of(*paths)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        pytest.param(*METHODS[index], marks=pytest.mark.soak if index == 1 else pytest.mark.sweep)
        for index in (1, 4, 6, 7, 9)
    ],
)
def test_real_tokenizers_over_random_weights(real_tokenizers, method, options):
    check(real_tokenizers, method, options, PROMPTS[2:5], max_new_tokens=10)
