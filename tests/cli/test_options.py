"""How models are loaded, on the command line."""

import json

import pytest
from typer.main import get_command

from adafuse.cli.generate import PromptRow, check_variables_read
from adafuse.cli.main import app
from adafuse.cli.options import read_models
from adafuse.errors import UserError
from adafuse.metrics.registry import BENCHMARKS, SCORERS
from tests.support.thinking import OFF


def test_one_value_is_that_of_all_models_and_several_are_one_each():
    def quantized(*names):
        return [spec.quantization for spec in read_models(["a", "b"], quantization=list(names))]

    assert quantized() == [None, None]
    assert quantized("int8") == ["int8", "int8"]
    assert quantized("none") == [None, None]
    assert quantized("none", "int4") == [None, "int4"]
    assert [spec.chat for spec in read_models(["a", "b"], chat=True)] == ["auto", "auto"]
    assert [spec.chat for spec in read_models(["a", "b"], chat_for=["b"])] == [False, True]
    assert [spec.chat for spec in read_models(["a", "b"])] == [False, False]
    with pytest.raises(UserError, match="--chat applies to all models, --chat-for to some"):
        read_models(["a", "b"], chat=True, chat_for=["b"])
    named = read_models(["a", "b"], revision=["main", "none"])
    assert [spec.revision for spec in named] == ["main", None]
    with pytest.raises(UserError, match="revisions: 1 given for 2 models"):
        read_models(["a", "b"], revision=["main"])


def test_variables_of_chat_templates_are_given_in_yaml():
    def given(*texts):
        specs = read_models(["a", "b"], chat_template_kwargs=list(texts))
        return [spec.chat_template_kwargs for spec in specs]

    assert given() == [None, None]
    assert given("{enable_thinking: false}") == [OFF, OFF]
    assert given('{"enable_thinking": false}', "none") == [OFF, None]
    with pytest.raises(UserError, match="chat_template_kwargs is 'off'; give values by name"):
        given("off")
    with pytest.raises(UserError, match=r"--chat-template-kwargs '\{' has a value that is"):
        given("{")


def test_marks_of_thoughts_are_given_in_yaml():
    marks = {"begin": "<think>", "end": "</think>"}
    for text in ("{begin: <think>, end: </think>}", json.dumps(marks)):
        (spec,) = read_models(["a"], thoughts=[text])
        assert spec.thoughts == marks
    for text in ("{begin: <think>}", "{start: <think>, end: </think>}", "{begin: ' ', end: b}"):
        with pytest.raises(UserError, match="must name begin and end, and nothing else; write"):
            read_models(["a"], thoughts=[text])
    with pytest.raises(UserError, match="thoughts must be a valid dictionary, not '</think>'"):
        read_models(["a"], thoughts=["</think>"])


def test_variables_of_chat_templates_that_no_prompt_is_put_into_are_refused():
    models = read_models(["a"], chat_template_kwargs=["{enable_thinking: false}"])
    rows = [PromptRow(id="1", prompt="Who?")]
    with pytest.raises(UserError, match="changes nothing, because all prompts are texts; add"):
        check_variables_read(models, rows)
    with pytest.raises(UserError, match=r"^--thoughts .* changes nothing, because all prompts"):
        check_variables_read(read_models(["a"], thoughts=["{begin: a, end: b}"]), rows)
    with pytest.raises(UserError, match=r"^--chat-date 2026-01-31 changes nothing, because all pr"):
        check_variables_read(read_models(["a"], chat_date=["2026-01-31"]), rows)
    check_variables_read(models, [PromptRow(id="1", prompt=[{"role": "user", "content": "Who?"}])])


def test_a_flag_is_for_the_models_that_it_names():
    def trusted(*names):
        specs = read_models(["a", "b"], trust_remote_code=list(names))
        return [spec.trust_remote_code for spec in specs]

    assert trusted() == [False, False]
    assert trusted("b") == [False, True]
    with pytest.raises(UserError, match=r"names 'c', which is not a --model; .* given there: a, b"):
        trusted("b", "c")


@pytest.mark.parametrize("command", ["score", "audit"])
@pytest.mark.parametrize(("name", "there_are"), [("benchmark", BENCHMARKS), ("scorer", SCORERS)])
def test_the_shell_suggests_every_benchmark_and_scorer(command, name, there_are):
    found = get_command(app).commands[command]
    (option,) = [each for each in found.params if each.name == name]
    context = found.make_context(command, [], resilient_parsing=True)
    assert [each.value for each in option.shell_complete(context, "")] == [*there_are]


def test_help_names_every_benchmark():
    (option,) = [
        each for each in get_command(app).commands["score"].params if each.name == "benchmark"
    ]
    assert option.help == f"{', '.join(BENCHMARKS)}."
