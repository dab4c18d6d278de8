"""YAML and JSON as users write them: what is written is what is read, or an error."""

import json
import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

import yaml

DEEPEST = 100  # levels of lists and objects: reading or copying more may exceed the stack
_TOO_DEEP = f"it is nested more than {DEEPEST} deep; flatten it"


class TwiceError(yaml.YAMLError):
    """A key is written twice."""


class Written:
    """A text without quotes, or a number; `place` is its file and line."""

    place = ""


class _Text(Written, str):
    pass


class _Int(Written, int):
    pass


class _Float(Written, float):
    pass


def parse_yaml(text: str, name: str = "text") -> Any:
    """Read YAML 1.2 with merge keys; `name` is that of its file.

    Text are, as in JSON, all numbers that would be written otherwise (`012`, `1_000`, `0x10`), and
    all keys. A text without quotes and a number know their place.

    Raises:
        yaml.YAMLError: no YAML, or a tag that is none of it; `TwiceError`: a key is there twice.
    """
    text = text.removeprefix("\ufeff")
    try:
        loader = _Loader(text)
        loader.name = name
        return shallow(loader.get_single_data())
    except yaml.reader.ReaderError as error:
        line, character = text.count("\n", 0, error.position) + 1, ord(text[error.position])
        reason = f"character U+{character:04X} is not allowed; remove it"
        raise yaml.YAMLError(f"line {line}: {reason}") from None
    except yaml.MarkedYAMLError as error:
        place = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise yaml.YAMLError(f"{place}{error.problem}") from None
    except RecursionError:
        raise yaml.YAMLError(_TOO_DEEP) from None
    except ValueError as error:  # such as !!int x
        raise yaml.YAMLError(" ".join(str(error).split())) from None


def parse_json(text: str | bytes) -> Any:
    """Read JSON.

    Raises:
        ValueError: no JSON, a key that an object has twice, or more than `DEEPEST` levels.
    """
    try:
        return shallow(json.loads(text, object_pairs_hook=_once))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def with_key(text: str, above: Sequence[str], after: str, key: str, value: str) -> str:
    """Return YAML or JSON with a key put after another one; all else stays as it is written.

    `above` are the keys that lead to the mapping. A key that is there without a value gets one.

    Raises:
        ValueError: it cannot be put there without changing something else.
    """
    refused = ValueError(f"{key} cannot be put after {'.'.join([*above, after])}")
    try:
        node: Any = yaml.compose(text, _Loader)
        wanted = part = parse_yaml(text)
        for name in above:
            node = {each.value: inner for each, inner in node.value}[name]
            part = part[name]
        if part.get(key) == value:  # of another name of the same mapping
            return text
        keys = {each.value: (each, inner) for each, inner in node.value}
        place, inner = keys[after]
        start = end = inner.end_mark.index
        line_end, quote = "\r\n" if "\r\n" in text else "\n", place.style or ""
        if key in keys:
            start, end = keys[key][1].start_mark.index, keys[key][1].end_mark.index
            new = f" {value}" if start == end else f"{quote}{value}{quote}"
        elif node.flow_style:
            new = f", {quote}{key}{quote}: {quote}{value}{quote}"
        else:
            start = end = text.find(line_end, end) if line_end in text[end:] else len(text)
            new = f"{line_end}{' ' * place.start_mark.column}{key}: {value}"
        changed = text[:start] + new + text[end:]
        filled, part[key] = part.get(key) is not None, value
        if filled or parse_yaml(changed) != wanted:
            raise refused
    except (yaml.YAMLError, KeyError, AttributeError, TypeError) as error:
        raise refused from error
    return changed


def shallow(value: Any) -> Any:
    """Return a value of lists and objects that are at most `DEEPEST` deep; refuse others."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            return value
        parts = [each.values() if isinstance(each, dict) else each for each in level]
        # Once each, however often YAML's aliases repeat them.
        level = list({id(each): each for each in chain.from_iterable(parts)}.values())
    raise ValueError(_TOO_DEEP)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {twice!r} occurs twice; remove one")
    return values


class _Loader(yaml.SafeLoader):
    """PyYAML's, with scalars of YAML 1.2 instead of 1.1."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.YAMLError(f"line {line}: a key must be text; quote it")
            if key.value in lines:
                raise TwiceError(
                    f"key {key.value!r} is written twice, in line {lines[key.value]} and in line"
                    f" {line}; remove or rename one"
                )
            lines[key.value] = line
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        self.flatten_mapping(node)
        return {key.value: self.construct_object(value, deep=deep) for key, value in node.value}

    def _text(self, node: Any) -> Any:
        return node.value if node.style else self._placed(_Text(node.value), node)

    def _int(self, node: Any) -> Any:
        return self._placed(_Int(node.value), node)

    def _float(self, node: Any) -> Any:
        # .inf and .nan
        return self._placed(_Float(re.sub(r"\.(?=[in])", "", node.value.lower())), node)

    def _placed(self, value: Any, node: Any) -> Any:
        value.place = f"{self.name}, line {node.start_mark.line + 1}"
        return value


_SCALARS = {
    "null": (r"~|null|Null|NULL|", [*"~nN", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    "int": (r"0|-?[1-9][0-9]*", [*"-0123456789"]),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        [*"-+.0123456789"],
    ),
    "merge": (r"<<", ["<"]),
}
_Loader.yaml_implicit_resolvers = {}
for _kind, (_pattern, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_kind}", re.compile(f"^(?:{_pattern})$"), _first
    )
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader._int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader._float)
_Loader.add_constructor("tag:yaml.org,2002:str", _Loader._text)
