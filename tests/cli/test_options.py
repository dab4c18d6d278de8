"""How models are loaded, on the command line."""

import pytest
from typer.main import get_command

from adafuse.cli.main import app
from adafuse.cli.options import flags, one_or_each
from adafuse.errors import UserError
from adafuse.scoring.tasks import BENCHMARKS, TASKS


def test_one_value_is_that_of_all_models_and_several_are_one_each():
    assert one_or_each(None) is None
    assert one_or_each(["int8"]) == "int8"
    assert one_or_each(["none"]) is None
    assert one_or_each(["none", "int4"]) == [None, "int4"]


def test_a_flag_is_for_the_models_that_it_names():
    assert flags(["a", "b"], None, "--x") == [False, False]
    assert flags(["a", "b"], ["b"], "--x") == [False, True]
    with pytest.raises(UserError, match="--x names 'c', which is not a --model"):
        flags(["a", "b"], ["b", "c"], "--x")


@pytest.mark.parametrize("command", ["score", "audit"])
@pytest.mark.parametrize(("name", "there_are"), [("benchmark", BENCHMARKS), ("metric", TASKS)])
def test_the_shell_suggests_every_benchmark_and_metric(command, name, there_are):
    found = get_command(app).commands[command]
    (option,) = [each for each in found.params if each.name == name]
    context = found.make_context(command, [], resilient_parsing=True)
    assert [each.value for each in option.shell_complete(context, "")] == [*there_are]


def test_help_names_every_benchmark():
    (option,) = [
        each for each in get_command(app).commands["score"].params if each.name == "benchmark"
    ]
    assert option.help == f"{', '.join(BENCHMARKS)}."
