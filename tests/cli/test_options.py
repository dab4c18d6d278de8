"""How models are loaded, on the command line."""

import pytest

from adafuse.cli.options import flags, one_or_each
from adafuse.errors import UserError


def test_one_value_is_that_of_all_models_and_several_are_one_each():
    assert one_or_each(None) is None
    assert one_or_each(["int8"]) == "int8"
    assert one_or_each(["none"]) is None
    assert one_or_each(["none", "int4"]) == [None, "int4"]


def test_a_flag_is_for_the_models_that_it_names():
    assert flags(["a", "b"], None, "--x") == [False, False]
    assert flags(["a", "b"], ["b"], "--x") == [False, True]
    with pytest.raises(UserError, match="--x names 'c', which is no --model"):
        flags(["a", "b"], ["b", "c"], "--x")
