from pathlib import Path

import pytest

from adafuse.errors import UserError
from adafuse.lm_eval.arguments import read_arguments
from adafuse.models.spec import model_specs


def test_models_and_their_settings_are_joined_by_plus_as_the_harness_reads_them():
    given = {"models": "A+B", "weights": "2+1", "revisions": "main+none", "quantization": "int8"}
    arguments, method = read_arguments(given)
    assert arguments.models == ("A", "B")
    assert arguments.weights == (2.0, 1.0)
    assert arguments.loading["revisions"] == ("main", None)
    assert arguments.loading["quantization"] == ("int8",)
    assert method.name == "adafuse"


def test_lists_are_for_paths_with_a_plus_and_for_devices():
    given = {"models": ["a+b", "c"], "device": ["cuda:0+cuda:1", "cpu"], "weights": [0.5, 1]}
    arguments, _ = read_arguments(given)
    assert arguments.models == ("a+b", "c")
    assert arguments.loading["device"] == ["cuda:0+cuda:1", "cpu"]
    assert arguments.weights == (0.5, 1.0)


@pytest.mark.parametrize("trace", ["~/t.parquet", "$HOME/t.parquet", Path("~/t.parquet")])
def test_home_and_variables_of_paths_are_filled_in(tmp_path, monkeypatch, trace):
    monkeypatch.setenv("HOME", str(tmp_path))
    arguments, _ = read_arguments({"models": "A+B", "trace": trace})
    assert arguments.trace == f"{tmp_path}/t.parquet"


def test_a_single_weight_may_come_as_a_number():
    arguments, _ = read_arguments({"models": "A", "method": "single", "weights": 2})
    assert arguments.weights == (2.0,)


def test_everything_else_is_an_option_of_the_method():
    _, method = read_arguments({"models": "A+B", "tau": 0.5, "max_words": 2, "branching": 3})
    assert method.name == "adafuse"
    assert method.options.model_dump(exclude_defaults=True) == {
        "tau": 0.5,
        "max_words": 2,
        "branching": 3,
    }
    _, method = read_arguments({"models": "A+B", "method": "fixed_length", "words": 2})
    assert method.name == "fixed_length"


@pytest.mark.parametrize(("size", "read"), [("4", 4), (4, 4), ("auto", "auto")])
def test_the_batch_size_is_what_the_harness_passes_on(size, read):
    assert read_arguments({"models": "A+B", "batch_size": size})[0].batch_size == read


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "--model adafuse needs models; give --model_args models=A"),
        ({"pretrained": "A"}, "--model adafuse needs models"),
        (
            {"models": "A+B", "tua": 1},
            "argument 'tua'; known are: plugins, models, weights, .*mean 'tau'",
        ),
        ({"models": "A+B", "peft": "x"}, "unknown argument 'peft'"),
        ({"models": "A+B", "method": "best_of"}, "unknown method 'best_of'; known are: single"),
        ({"models": "A+B", "method": "single"}, "method single needs exactly 1 model, not 2"),
        ({"models": "A+B", "tau": -1}, "method adafuse: tau must be greater than or equal to 0"),
        ({"models": "A+B", "weights": "1"}, "1 weights for 2 models; give one per model"),
        ({"models": "A+B", "weights": "a+b"}, "weights.0 must be a valid number"),
        ({"models": "A", "revisions": 1e5}, r"revisions must be text \(write '100000.0' in quotes"),
        ({"models": "A+B", "revisions": "v1"}, "revisions: 1 given for 2 models"),
        ({"models": "A", "trust_remote_code": "yes"}, "trust_remote_code must be a valid boolean"),
        ({"models": "A", "chat": True}, "unknown argument 'chat'"),
        ({"models": "A+B", "batch_size": "auto:4"}, "batch_size must be a whole number above 0"),
        ({"models": "A+B", "max_batch_size": 8}, "not for --model adafuse; give --batch_size 8"),
        ({"models": "A+B", "max_gen_toks": 0}, "max_gen_toks must be greater than"),
        ({"models": "A+B", "engine": "fast"}, "engine must be 'tree' or 'reference', not 'fast'"),
        ({"models": "A+B", "trace": "$NOWHERE/t.parquet"}, "trace: path '.NOWHERE/t.parquet': var"),
        ({"models": "A+B", "max_error_share": 2}, "max_error_share must be less than"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(given, sentence):
    with pytest.raises(UserError, match=sentence):
        read_arguments(given)


def test_variables_of_chat_templates_are_a_mapping_or_one_per_model():
    off = {"enable_thinking": False}
    for given, each in ((off, [off, off]), ([None, off], [None, off])):
        arguments, _ = read_arguments({"models": "A+B", "chat_template_kwargs": given})
        specs = model_specs(arguments.models, **arguments.loading)
        assert [spec.chat_template_kwargs for spec in specs] == each
    with pytest.raises(UserError, match="chat_template_kwargs is 'off'; give values by name"):
        read_arguments({"models": "A+B", "chat_template_kwargs": "off"})


@pytest.mark.parametrize("given", ["2026-01-31", ["2026-01-31"], "2026-01-31+2024-07-26"])
def test_the_day_that_templates_see_is_one_or_one_per_model(given):
    arguments, _ = read_arguments({"models": "A+B", "chat_date": given})
    (first, *_) = [spec.chat_date for spec in model_specs(arguments.models, **arguments.loading)]
    assert first == "2026-01-31"
    with pytest.raises(UserError, match="chat_date 'today' is not a day"):
        read_arguments({"models": "A+B", "chat_date": "today"})
