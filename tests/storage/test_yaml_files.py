"""What is written in YAML or JSON is what is read."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adafuse.errors import UserError
from adafuse.options import Flag, Positive, Section, Text, parse
from adafuse.storage.yaml_files import TwiceError, parse_json, parse_yaml, with_key

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("abc01")
)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text("ab1"), inner), max_leaves=9
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((name, name) for name in ("on", "off", "yes", "No", "y", "n", "=", "2024-01-01", "1:30")),
        *((name, name) for name in ("012", "0x10", "0o7", "0b1", "1_000", "+5", "-0", "-01", "1e")),
        *((str(number), number) for number in (0, 7, -7, 10**30)),
        *(("1e-1", 0.1), (".5", 0.5), ("1e3", 1000.0), ("1.", 1.0), ("-2.5E+1", -25.0)),
        *((".inf", float("inf")), ("-.Inf", float("-inf")), ("'012'", "012"), ("!!str 12", "12")),
        *(("true", True), ("FALSE", False), ("~", None), ("null", None), ("", None)),
    ],
)
def test_a_value_is_that_of_yaml_1_2_and_odd_numbers_are_texts(text: str, value: Any) -> None:
    (found,) = parse_yaml(f"- {text}")
    assert found == value and isinstance(found, type(value))


@pytest.mark.parametrize(
    "key", ["on", "012", "null", "~", "1e-1", "2024-01-01", "0x10", "true", "12"]
)
def test_a_key_is_the_text_that_is_written(key: str) -> None:
    assert parse_yaml(f"{key}: 1") == parse_yaml(f"{{{key}: 1}}") == {key: 1}


@given(_VALUES)
def test_json_is_yaml(value: Any) -> None:
    text = json.dumps(value)
    assert parse_yaml(text) == parse_json(text) == value


@pytest.mark.parametrize(
    ("text", "key", "lines"),
    [
        ("runs:\n  a: {tau: 1}\n  b: {}\n  a: {tau: 2}", "a", (2, 4)),
        ("a: 1\n'a': 1", "a", (1, 2)),
        ("- {x: 1,\n   x: 1}", "x", (1, 2)),
        ("012: a\n'012': b", "012", (1, 2)),
        ("a: &a {x: 1}\nb: {<<: *a, <<: *a}", "<<", (2, 2)),
        ("null:\n~:\nnull:", "null", (1, 3)),
        ("a: [{b: {c: 1}},\n{b: {c: 1,\nc: 2}}]", "c", (2, 3)),
    ],
)
def test_a_key_that_is_written_twice_is_refused_with_its_lines(
    text: str, key: str, lines: tuple[int, int]
) -> None:
    told = f"key '{key}' is written twice, in line {lines[0]} and in line {lines[1]}; remove or"
    with pytest.raises(TwiceError, match=told):
        parse_yaml(text)


def test_merged_keys_may_be_replaced_and_anchors_be_used_twice() -> None:
    text = """
        one: &one {tau: 0.5, words: 1}
        two: &two {<<: *one, words: 2}
        three: {<<: [*two, *one], tau: 0.7}
        four: [*one, *one]
    """
    one = {"tau": 0.5, "words": 1}
    found = parse_yaml(text)
    assert found["two"] == {"tau": 0.5, "words": 2}
    assert found["three"] == {"tau": 0.7, "words": 2}
    assert found["four"] == [one, one]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nb:\n\tc: 1", "line 3: found character '.*' that cannot start any token"),
        ("a: 1\n b: 2", "line 2: mapping values are not allowed here"),
        ("a: {b: c", "line 1: "),
        ("a:\n  {{x}}: 1", "line 2: a key must be text; quote it"),
        ("a: *b", "line 1: found undefined alias 'b'"),
        ("a: 1\n---\nb: 1", "line 2: but found another document"),
        ("a: !!int b", "invalid literal"),
        pytest.param("[" * 100_000, "nested more than 100 deep", id="deep"),
        ("\ufeffa: 1\nb: x\x07y", r"line 2: character U\+0007 is not allowed; remove it"),
        ("a: 1\n\n# \x00", r"line 3: character U\+0000 is not allowed; remove it"),
        ("a: !!python/name:os.x ''", "line 1: could not determine a constructor for the tag"),
    ],
)
def test_what_is_not_valid_is_said_with_its_line(text: str, told: str) -> None:
    with pytest.raises(yaml.YAMLError, match=told):
        parse_yaml(text)


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '[{"b": {"a": 1, "c": 2, "a": 1}}]'])
def test_a_key_twice_in_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="key 'a' occurs twice; remove one"):
        parse_json(text)


class Some(Section):
    number: Positive = 1
    flag: Flag = True
    name: Text = "x"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "number: 012",
            r"'012' \(some.yaml, line 3\), which is a text; write true or false, and n",
        ),
        ("number: 1_000", r"'1_000' \(some.yaml, line 3\), which is a text"),
        ("flag: yes", r"flag must be a valid boolean, not 'yes' \(some.yaml, line 3\), which is a"),
        ("flag: maybe", r"flag must be a valid boolean, not 'maybe' \(some.yaml, line 3\)$"),
        ("flag: 'yes'", "flag must be a valid boolean, not 'yes'$"),
        ("name: 1.10", r"must be a valid string, not 1.1 \(some.yaml, line 3\); put it in quotes"),
        ("number: 1e3", r"number must be a valid integer, not 1000.0 \(some.yaml, line 3\)"),
        ("number: 0", r"must be greater than or equal to 1, not 0 \(some.yaml, line 3\)"),
        ("name: ~", "name must be a valid string, not None; put it in quotes"),
    ],
)
def test_a_value_of_another_type_is_a_sentence_with_the_line_or_the_fix(text, told) -> None:
    with pytest.raises(UserError, match=told):
        parse(Some, parse_yaml(f"\n\n{text}", "some.yaml"), "some")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: {b: x}", "a: {b: x, k: v}"),
        ("a: {b: x, k: null} # c", "a: {b: x, k: v} # c"),
        ("a: {b: 'x', k: }", "a: {b: 'x', k: v }"),
        ("a:\n  b: x # c\n  c: 1", "a:\n  b: x # c\n  k: v\n  c: 1"),
        ("a:\n    b: x", "a:\n    b: x\n    k: v"),
        ("a:\n  k:\n  b: x\n", "a:\n  k: v\n  b: x\n"),
        ('{"a": {"b": "x"}}', '{"a": {"b": "x", "k": "v"}}'),
        ("z: &m {b: x}\na: *m\n", "z: &m {b: x, k: v}\na: *m\n"),
        ("a: {b: x, k: v}", "a: {b: x, k: v}"),
    ],
)
def test_a_key_is_put_after_another_one_and_all_else_stays(text: str, expected: str) -> None:
    assert with_key(text, ["a"], "b", "k", "v") == expected


@pytest.mark.parametrize(
    "text",
    [
        "a: {b: x, k: w}",  # it has another value
        "z: &m {b: x}\na: {<<: *m}",  # it would be put into z, too
        "a: {c: x}",
        "a: [b]",
        "a:\n  b: >-\n    x\n  c:\n    d: 1",  # it would come into c
    ],
)
def test_a_key_is_refused_where_something_else_would_change(text: str) -> None:
    with pytest.raises(ValueError, match=r"k cannot be put after a\.b"):
        with_key(text, ["a"], "b", "k", "v")
