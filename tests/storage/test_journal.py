"""The journal, torn at any byte."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.errors import UserError
from adafuse.storage.journal import Journal, journal_rows

ROOT = Path(__file__).parents[2]

ROWS = {name: {"text": f"text \u2028\n of {name}", "nll": [0.5, float("inf")]} for name in "abcd"}

DIGESTS = {name: f"digest of {name}" for name in ROWS}
OTHERS = {name: f"another digest of {name}" for name in ROWS}


def filled(path: Path, digests: Mapping[str, str] = DIGESTS) -> bytes:
    with Journal(path, digests) as journal:
        for name, row in ROWS.items():
            journal.append(name, row)
    return path.read_bytes()


def test_rows_are_there_after_every_append(tmp_path: Path) -> None:
    path = tmp_path / "x.journal"
    with Journal(path, DIGESTS) as journal:
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
    with Journal(path, DIGESTS) as journal:
        assert journal.rows == {name: ROWS[name] for name in list(ROWS)[:lines]}
        for name in list(ROWS)[lines:]:
            journal.append(name, ROWS[name])
    with Journal(path, DIGESTS) as journal:
        assert journal.rows == ROWS


@given(st.binary(max_size=60), st.integers(0, 4))
def test_rubbish_between_lines_costs_no_whole_line(tmp_path_factory, rubbish, place) -> None:
    path = tmp_path_factory.mktemp("journal") / "x.journal"
    lines = filled(path).splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:place], rubbish + b"\n", *lines[place:]]))
    assert Journal(path, DIGESTS).rows == ROWS


def test_rows_of_other_digests_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.journal"
    filled(path, OTHERS)
    with Journal(path, DIGESTS) as journal:
        assert journal.rows == {}
        journal.append("a", ROWS["a"])
        journal.append("b", ROWS["b"])
    some = {name: DIGESTS[name] for name in "bc"}
    assert Journal(path, some).rows == {"b": ROWS["b"]}
    assert Journal(path, OTHERS).rows == ROWS
    assert journal_rows(path).keys() == {*OTHERS.values(), DIGESTS["a"], DIGESTS["b"]}


def test_rows_of_one_digest_are_one_row(tmp_path: Path) -> None:
    """Two rows of the same prompt are decoded once, whatever their ids."""
    path = tmp_path / "x.journal"
    filled(path)
    assert Journal(path, {"x": DIGESTS["a"], "y": DIGESTS["a"]}).rows == dict.fromkeys(
        "xy", ROWS["a"]
    )


HOSTILE = [
    b'{"digest": "digest of a", "row": {}}',
    b'{"digest": "digest of a", "row": null}',
    b"0123456789abcdef " + b"[" * 100_000,
    b"[" * 100_000,
    b"null",
    b"\xff\xfe\x00",
]


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_a_line_that_no_journal_wrote_is_dropped(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "x.journal"
    path.write_bytes(filled(path) + line + b"\n")
    with Journal(path, DIGESTS) as journal:
        assert journal.rows == ROWS


@given(st.data())
def test_a_line_that_was_edited_is_dropped(tmp_path_factory, data) -> None:
    path = tmp_path_factory.mktemp("journal") / "x.journal"
    lines = filled(path).splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines[1]) - 2))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte not in (lines[1][at], 10)))
    path.write_bytes(lines[0] + lines[1][:at] + bytes([other]) + lines[1][at + 1 :] + lines[2])
    assert Journal(path, DIGESTS).rows == {name: ROWS[name] for name in "ac"}


def test_what_was_dropped_is_said_once(tmp_path: Path, caplog) -> None:
    path = tmp_path / "x.journal"
    whole = filled(path)
    path.write_bytes(b"rubbish\n" + whole + b'{"digest": "d')
    with caplog.at_level("WARNING"), Journal(path, DIGESTS):
        pass
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: dropping damaged lines (2)"
    ]
    assert path.read_bytes() == whole


def test_a_row_that_is_decoded_again_replaces_the_first_one(tmp_path: Path) -> None:
    path = tmp_path / "x.journal"
    filled(path)
    with Journal(path, DIGESTS) as journal:
        del journal.rows["c"]
        journal.append("c", {"text": "new"})
    for _ in range(2):
        with Journal(path, DIGESTS) as journal:
            assert journal.rows == ROWS | {"c": {"text": "new"}}


def test_a_journal_leaves_no_other_file_behind(tmp_path: Path) -> None:
    filled(tmp_path / "x.journal")
    with Journal(tmp_path / "x.journal", DIGESTS):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["x.journal"]


LINE = len(b'0123456789abcdef {"digest": "A", "row": {"text": ""}}\n' + b"x" * 100)
FULL = """
import resource, sys
from pathlib import Path
from adafuse.errors import UserError
from adafuse.storage.journal import Journal
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), -1))
try:
    with Journal(Path(sys.argv[1]), dict(zip("abcd", "ABCD"))) as journal:
        for name in "abcd":
            journal.append(name, {"text": "x" * 100})
except UserError as error:
    print(error)
"""


@pytest.mark.parametrize("size", [0, 1, LINE - 1, LINE, LINE + 1, 200, 400])
def test_a_disk_that_is_full_is_one_sentence_and_loses_no_row(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x.journal"
    command = [sys.executable, "-c", FULL, str(path), str(size)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    kept = len(Journal(path, dict(zip("abcd", "ABCD", strict=True))).rows)
    assert kept == size // LINE
    assert done.stdout == (
        f"journal {str(path)!r} cannot be written (File too large); make room or give another"
        f" results folder, and run again: its {kept} rows are kept\n"
    )
    assert done.stderr == ""


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be written \(.*\); make room or give another"):
        Journal(tmp_path / "file/x.journal", {}).__enter__()


def test_rows_of_other_servers_are_dropped_where_a_job_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "x.journal"
    for server, name in (("one", "a"), ("other", "b")):
        with Journal(path, DIGESTS) as journal:
            journal.continue_with([server], lambda some, others: True)
            journal.append(name, ROWS[name])
    with Journal(path, DIGESTS) as journal:
        assert journal.servers == {"a": ["one"], "b": ["other"]}
        journal.continue_with(["other"], lambda some, others: some == others)
        assert journal.rows == {"b": ROWS["b"]}
