"""Fields of a JSON schema, in words."""

from typing import Annotated, Literal

import pytest
from pydantic import Field

from adafuse.methods import METHODS
from adafuse.options import CHANGE_WHEN, Section
from tools.docs.schema import schema
from tools.docs.tables import (
    default,
    fields_table,
    options_of_methods,
    options_table,
    table,
    value,
)


class Inner(Section):
    count: Annotated[int, Field(ge=0)] = 3
    """how many; change it when there are more"""


class Outer(Section):
    name: str
    """a name"""
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """a | part"""
    rule: Literal["a", "b", "c"] = "b"
    """a rule"""
    many: tuple[Literal["x", "y"], ...] = ("x",)
    """several"""
    numbers: list[float] | None = None
    """some"""
    either: int | Literal["auto"] = "auto"
    """one of both"""
    flag: bool = False
    """yes or no"""
    inner: Inner = Inner()
    """more of it"""


FIELDS = Outer.model_json_schema()["properties"]


@pytest.mark.parametrize(
    ("name", "words", "without"),
    [
        ("name", "text", ""),
        ("share", "number above 0 to 1", ""),
        ("rule", "`a`, `b` or `c`", "`b`"),
        ("many", "list of `x` or `y`", '`["x"]`'),
        ("numbers", "list of numbers", ""),
        ("either", "whole number or `auto`", "`auto`"),
        ("flag", "`true` or `false`", "`false`"),
        ("inner", "section", ""),
    ],
)
def test_a_field_says_which_values_it_takes_and_what_holds_without_it(
    name: str, words: str, without: str
) -> None:
    assert (value(FIELDS[name]), default(FIELDS[name])) == (words, without)


def test_a_table_has_a_row_for_each_field_and_says_what_is_required() -> None:
    lines = fields_table(Outer.model_json_schema(), ["name"]).splitlines()
    assert lines[2] == "| `name` | text | required | a name |"
    assert lines[3] == r"| `share` | number above 0 to 1 |  | a \| part |"
    assert len(lines) == 2 + len(FIELDS)


def test_the_last_column_is_there_if_some_field_says_when_to_change_it() -> None:
    lines = fields_table(Inner.model_json_schema(), ()).splitlines()
    assert lines[2] == "| `count` | whole number from 0 | `3` | how many | there are more |"


def test_every_field_of_the_configuration_says_what_it_means() -> None:
    sections = [schema(), *schema()["$defs"].values()]
    for section in sections:
        for name, field in section["properties"].items():
            assert field.get("description"), name
            assert not field["description"].endswith("."), name
            assert not field.get(CHANGE_WHEN, "").endswith("."), name


def test_every_optional_field_of_the_main_sections_says_when_to_change_it() -> None:
    typed = schema()
    for name in ("ModelConfig", "RunConfig", "DecodeConfig", "ClusterConfig", "BenchmarkConfig"):
        for field, told_of in typed["$defs"][name]["properties"].items():
            if "default" in told_of:
                assert told_of.get(CHANGE_WHEN), f"{name}.{field}"


def test_every_option_of_every_method_says_what_it_means() -> None:
    options = options_of_methods()
    assert all(all(option) for option in options)
    named = [name for names in options.values() for name in names]
    for name, method in METHODS.items():
        if method.__module__.startswith("adafuse."):
            assert named.count(f"`{name}`") == len(method.Options.model_fields)


def test_an_option_of_several_methods_is_described_once() -> None:
    shared, single = options_table(shared=True), options_table(shared=False)
    assert shared.count("`weighting` | `given` or `prompt` ") == 1
    assert "`weighting` | `given` or `prompt` " not in single
    assert "| `adafuse` | `tau` |" in single


def test_bars_and_line_ends_within_cells_stay_within_them() -> None:
    assert table(("a",), [("b|c\nd",)]) == "| a |\n| --- |\n| b\\|c d |"
