"""`adafuse doctor` for people and machines."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adafuse.cli.main import app
from tests.conftest import toy_path
from tests.support.stand_in import standing
from tests.support.thinking import SWITCHED, with_template

PAIR = ["--model", toy_path("mistral"), "--model", toy_path("llama"), "--device", "cpu"]
SHORT = ["--prompt-tokens", "50", "--max-new-tokens", "50"]


def doctor(*options):
    return CliRunner().invoke(app, ["doctor", *options])


def test_the_installation_alone_is_healthy():
    done = doctor()
    assert done.exit_code == 0
    assert "adafuse 0." in done.stdout
    assert "cpu (" in done.stdout
    assert "\n0 problems, " in done.stdout


def test_models_are_told_with_what_they_have_in_common():
    done = doctor(*PAIR)
    assert done.exit_code == 0
    assert "start token: <s>; end tokens: </s>" in done.stdout
    assert "tokens in common" in done.stdout
    assert "8 examples at a time take" in done.stdout


def test_models_that_think_are_told(tmp_path):
    path = with_template("qwen3", tmp_path / "qwen3", SWITCHED)
    where = "from <think> to </think>"
    off = "switched off by chat_template_kwargs {enable_thinking: false}"
    assert f"  thinks before it answers, {where}; {off}\n" in doctor("--model", path).stdout
    told = doctor("--model", path, "--chat-template-kwargs", "{enable_thinking: false}").stdout
    assert f"  does not think before it answers; thoughts would lie {where}\n" in told


def test_a_problem_is_a_sentence_and_status_1():
    done = doctor(*PAIR, "--max-new-tokens", "9000")
    assert done.exit_code == 1
    assert done.stdout.count("problem: ") == 2
    assert "are more than the 8192 positions of model" in done.stdout
    assert "2 problems, 0 warnings" in done.stdout


def test_json_holds_everything():
    done = doctor(*PAIR, "--json", "--batch-size", "auto", "--prompt-tokens", "100")
    told = json.loads(done.stdout)
    assert told["healthy"]
    assert told["models"][0]["ends"] == {"</s>": "generation config"}
    assert {"installation", "models", "overlaps", "loads", "findings", "healthy"} == set(told)
    assert told["loads"][0]["rows"] >= 1
    broken = doctor("--model", "/nowhere", "--json")
    assert broken.exit_code == 1
    assert not json.loads(broken.stdout)["healthy"]


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--batch-size", "0", "doctor: batch_size must be a whole number above 0"),
        ("--batch-size", "many", "doctor: batch_size must be a whole number above 0"),
        ("--max-new-tokens", "0", "doctor: max_new_tokens must be greater than or equal to 1"),
    ],
)
def test_sizes_that_make_no_sense_are_refused_as_generate_refuses_them(option, value, sentence):
    told = str(doctor(option, value).exception)
    assert told.startswith(sentence)
    generate = CliRunner().invoke(app, ["generate", "--model", "a", "--prompt", "b", option, value])
    assert told.removeprefix("doctor") == str(generate.exception).removeprefix("generate")


def test_a_served_model_is_probed_and_needs_no_memory_here(distributions):
    with standing(distributions[1], context=256) as server:
        done = doctor("--model", toy_path("llama"), "--server", server.url, *SHORT)
    assert done.exit_code == 0, done.stdout
    assert f"on the server {server.url}" in done.stdout
    assert "20 texts have the same ids" in done.stdout
    assert "cold and cached: log-probabilities differ by" in done.stdout
    assert "memory on" not in done.stdout


def test_a_server_of_another_model_is_a_problem(distributions):
    with standing(distributions[0]) as server:
        done = doctor("--model", toy_path("llama"), "--server", server.url, *SHORT)
    assert done.exit_code == 1
    assert "give the path of the model that is served there" in done.stdout


def test_one_model_is_served_and_another_is_here(distributions):
    with standing(distributions[0], context=256) as server:
        done = doctor(*PAIR, "--server", server.url, "--server", "none", *SHORT)
    assert done.exit_code == 0, done.stdout
    assert "memory on cpu" in done.stdout


def test_how_models_fit_on_other_gpus_is_told_with_the_options_to_use(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        config = (Path(toy_path("llama")) / "config.json").read_text()
        (tmp_path / name / "config.json").write_text(config)
    models = ["--model", str(tmp_path / "a"), "--model", str(tmp_path / "b")]
    done = doctor("--fit", *models, "--gpus", "2x24GiB")
    assert done.exit_code == 0, done.exception
    lines = done.stdout.splitlines()
    assert re.fullmatch(
        rf"model {tmp_path}/a: bfloat16 0\.00\d GiB, int8 0\.00\d GiB, int4 0\.00\d GiB", lines[0]
    )
    assert lines[1].startswith("  an example of 768 tokens: 0.0")
    assert lines[4:] == [
        "cuda:0, cuda:1: 21.6 GiB may be taken",
        f"  {tmp_path}/a (bfloat16) on cuda:0",
        f"  {tmp_path}/b (bfloat16) on cuda:0",
        "fits with --device cuda:0",
    ]
    done = doctor("--fit", *models, "--gpus", "24GiB", "--prompt-tokens", "9000")
    said = "  an example of 8192 tokens, the most of its config: 0."
    assert done.stdout.splitlines()[1].startswith(said)
    small = doctor("--fit", *models, "--gpus", "0.001GiB", "--json")
    assert small.exit_code == 1
    assert json.loads(small.stdout)["where"] is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--gpus", "4x80GiB", *PAIR],
            "--gpus names the GPUs of another machine for --fit; add it",
        ),
        (["--fit"], "--fit needs models that are loaded; name them with --model"),
        (["--fit", *PAIR, "--gpus", "many"], "--gpus 'many' is not a list of GPUs; write one such"),
    ],
)
def test_what_fit_cannot_use_is_refused(options, sentence):
    assert str(doctor(*options).exception).startswith(sentence)
