import pytest

from adafuse.decoding.words import Limits, Settings
from adafuse.errors import UserError
from adafuse.methods import METHODS, resolve
from adafuse.options import parse


@pytest.mark.parametrize(
    ("method", "options", "sentence"),
    [
        ("adafus", {}, r"unknown method 'adafus'; known are: single, adafuse"),
        ("adafuse", {"tauu": 0.5}, r"method adafuse: unknown option 'tauu'; known are: .*tau"),
        ("adafuse", {"tau": float("inf")}, r"tau must be a finite number, not inf"),
        ("adafuse", {"tau": -0.1}, r"tau must be greater than or equal to 0, not -0.1"),
        (
            "adafuse",
            {"max_words": 0},
            r'max_words must be a whole number above 0, or "adaptive", not 0',
        ),
        ("adafuse", {"branching": 0}, r"branching must be greater than or equal to 1, not 0"),
        (
            "adafuse",
            {"fusion": "sum"},
            r"fusion: unknown fusion rule 'sum'; known are: mean_nll, mixture, ",
        ),
        ("adafuse", {"tau": 7}, r"tau must be less than or equal to 2, not 7"),
        ("adafuse", {"tau": "0.7"}, r"tau must be a valid number, not '0.7'"),
        ("fixed_length", {"tau": 0.5}, r"method fixed_length: unknown option 'tau'"),
        ("sweetspan", {"filter_ratio": 0.5}, r"filter_ratio must be greater than or equal to 1"),
        ("cool_fusion", {"segments": "long"}, r"segments must be 'aligned' or 'shortest', not"),
        ("specfuse", {"temperature": 0.0}, r"temperature must be greater than 0, not 0.0"),
        ("specfuse", {"top_p": 1.1}, r"top_p must be less than or equal to 1, not 1.1"),
        ("rerank", {"score": "sum"}, r"score must be 'mean_nll' or 'mean_perplexity', not 'sum'"),
        ("beam_scaling", {"width": 0}, r"width must be greater than or equal to 1, not 0"),
        ("unite", {"top_k": 0}, r"top_k must be greater than or equal to 1, not 0"),
        ("unite", {"duplicates": "drop"}, r"duplicates must be 'exclude', 'keep' or 'zero', not"),
        ("unite", {"commit": "token"}, r"commit must be 'surface' or 'first_token', not 'token'"),
        ("gac", {"threshold": 1.5}, r"threshold must be less than or equal to 1, not 1.5"),
        ("adafuse", {"sure": 1.5}, r"sure must be less than or equal to 1, not 1.5"),
        ("adafuse", {"ask": "never"}, r"ask must be 'always' or 'unsure', not 'never'"),
        ("adafuse", {"margin": "end"}, r"margin must be 'start' or 'word', not 'end'"),
        ("unite", {"positions": "some"}, r"positions must be 'all' or 'stable', not 'some'"),
        ("adafuse", {"max_words": "all"}, r'max_words must be a whole number above 0, or "adap'),
        ("adafuse", {"weighting": "best"}, r"weighting must be 'given' or 'prompt', not 'best'"),
        (
            "gac",
            {"weighting": "consistency"},
            r"weighting must be 'given' or 'prompt', not 'consist",
        ),
        ("unite", {"mean": "median"}, r"mean must be 'arithmetic' or 'geometric', not 'median'"),
        ("gac", {"gate": 1}, r"^method gac: option 'gate' is now 'primary'; rename it$"),
        ("gac", {"primary": -1}, r"primary must be greater than or equal to 0, not -1"),
    ],
)
def test_an_impossible_option_is_refused_in_one_sentence(method, options, sentence):
    with pytest.raises(UserError, match=sentence):
        resolve(method, options)


def test_defaults_are_those_of_the_paper():
    assert resolve("adafuse", {}).options.model_dump() == {
        "tau": 0.7,
        "max_words": 3,
        "branching": 1,
        "disagreement": "select",
        "gap": None,
        "margin": "start",
        "weighting": "given",
        "ask": "always",
        "sure": 0.9,
        "leader": 0,
        "fusion": "mean_nll",
        "gate": None,
        "max_word_tokens": 16,
    }


@pytest.mark.parametrize("name", METHODS)
def test_a_number_of_models_that_a_method_cannot_run_is_refused(name):
    fewest, most = METHODS[name].models
    for count in (1, 2, 5):
        if fewest <= count <= (most or count):
            resolve(name, {}).check_models(count)
        else:
            with pytest.raises(UserError, match=rf"{name} needs .* model.*, not {count}"):
                resolve(name, {}).check_models(count)
    with pytest.raises(UserError, match=f"{fewest} model.*, not 0"):
        resolve(name, {}).check_models(0)


def test_the_numbers_of_models():
    limited = {name: m.models for name, m in METHODS.items() if m.models != (1, None)}
    assert limited == {"single": (1, 1), "self_consistency": (1, 1), "llm_blender": (2, None)}


@pytest.mark.parametrize(("method", "option"), [("unite", "primary"), ("gac", "primary")])
def test_a_model_that_does_not_exist_is_refused_by_its_number(method, option):
    resolve(method, {option: 1}).check_models(2)
    sentence = f"method {method}: {option} is 2, but the models are numbered from 0 to 1"
    with pytest.raises(UserError, match=sentence):
        resolve(method, {option: 2}).check_models(2)


def test_limits_refuse_what_would_never_or_always_stop():
    assert parse(Limits, {"stop": "\n"}, "generate").stop == ("\n",)
    assert parse(Limits, {"stop": ["a", "b"]}, "generate").stop == ("a", "b")
    for values in ({"stop": [""]}, {"max_new_tokens": 0}, {"max_rounds": 0}):
        with pytest.raises(UserError, match="generate"):
            parse(Limits, values, "generate")
    for batch_size in ("most", 0, -1, True, 2.5):
        with pytest.raises(UserError, match='batch_size must be a whole number above 0, or "auto"'):
            parse(Settings, {"batch_size": batch_size}, "generate")
    assert [parse(Settings, {"batch_size": n}, "x").batch_size for n in (3, "auto")] == [3, "auto"]
    with pytest.raises(UserError, match="engine must be 'tree' or 'reference', not 'fast'"):
        parse(Settings, {"engine": "fast"}, "generate")
