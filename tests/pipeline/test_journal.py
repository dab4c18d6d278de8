"""The journal, torn at any byte."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from adafuse.pipeline.journal import Journal

ROWS = {name: {"text": f"text \u2028\n of {name}", "nll": [0.5, float("inf")]} for name in "abcd"}


def filled(path: Path, key: str = "key", names: str = "abcd") -> bytes:
    with Journal(path, key, ROWS) as journal:
        for name in names:
            journal.append(name, ROWS[name])
    return path.read_bytes()


def test_rows_are_there_after_every_append(tmp_path: Path) -> None:
    path = tmp_path / "x.journal"
    with Journal(path, "key", ROWS) as journal:
        for number, name in enumerate(ROWS, start=1):
            journal.append(name, ROWS[name])
            assert path.read_bytes().count(b"\n") == number


@given(st.data())
def test_a_journal_torn_at_any_byte_gives_back_its_whole_lines(tmp_path_factory, data) -> None:
    path = tmp_path_factory.mktemp("journal") / "x.journal"
    whole = filled(path)
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    lines = whole[:cut].count(b"\n")
    with Journal(path, "key", ROWS) as journal:
        assert journal.rows == {name: ROWS[name] for name in list(ROWS)[:lines]}
        for name in list(ROWS)[lines:]:
            journal.append(name, ROWS[name])
    with Journal(path, "key", ROWS) as journal:
        assert journal.rows == ROWS


@given(st.binary(max_size=60), st.integers(0, 4))
def test_rubbish_between_lines_costs_no_whole_line(tmp_path_factory, rubbish, place) -> None:
    path = tmp_path_factory.mktemp("journal") / "x.journal"
    lines = filled(path).splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:place], rubbish + b"\n", *lines[place:]]))
    assert Journal(path, "key", ROWS).rows == ROWS


def test_lines_of_another_key_or_row_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "x.journal"
    filled(path, key="other")
    with Journal(path, "key", ROWS) as journal:
        assert journal.rows == {}
        journal.append("a", ROWS["a"])
        journal.append("b", ROWS["b"])
    assert Journal(path, "key", ["b", "c"]).rows == {"b": ROWS["b"]}


def test_removing_leaves_nothing(tmp_path: Path) -> None:
    filled(tmp_path / "x.journal")
    with Journal(tmp_path / "x.journal", "key", ROWS) as journal:
        journal.remove()
    assert list(tmp_path.iterdir()) == []
