"""Data as scripts: what a page unpacks is what was written."""

import base64
import gzip
import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.report.explorer import number, write_packed, write_pieces

CALL = re.compile(r'adafuse\.receive\("(?P<key>[^"]*)","(?P<data>[A-Za-z0-9+/=]*)"\);\n')


def unpacked(path: Path) -> tuple[str, object]:
    found = CALL.fullmatch(path.read_text(encoding="ascii"))
    return found["key"], json.loads(gzip.decompress(base64.b64decode(found["data"])))


@given(value=st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=20))
def test_any_value_comes_back(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    folder = tmp_path_factory.mktemp("packed")
    write_packed(folder, "a/b", value)
    assert unpacked(folder / "a/b.js") == ("a/b", value)


def test_the_same_value_gives_the_same_file(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_packed(tmp_path / name, "k", ["x"] * 1000)
    assert (tmp_path / "one/k.js").read_bytes() == (tmp_path / "two/k.js").read_bytes()


@pytest.mark.parametrize("count", [0, 1, 3, 4, 7])
def test_pieces_together_are_the_whole(tmp_path: Path, count: int) -> None:
    write_pieces(tmp_path, "k", list(range(count)), 3)
    files = [tmp_path / f"k-{piece}.js" for piece in range(-(-count // 3))]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert [value for file in files for value in unpacked(file)[1]] == list(range(count))


def test_numbers_lose_digits_and_infinities_become_words() -> None:
    assert number(0.123456) == 0.1235
    assert number(71.44444, 1) == 71.4
    assert number(None) is None
    assert [number(value) for value in (math.inf, -math.inf, math.nan)] == ["inf", "-inf", "nan"]
