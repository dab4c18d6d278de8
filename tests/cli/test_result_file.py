"""The file of `adafuse generate`, above all when decoding stops before the end."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from adafuse.cli import generate as decoding
from adafuse.cli.errors import INTERRUPTED, run
from adafuse.cli.generate import check_out
from adafuse.cli.main import app
from adafuse.errors import UserError
from adafuse.records import Result

COMMAND = ["adafuse", "generate", "--model", "org/none", "--prompts", "in.jsonl", "--out"]


def result(text):
    return Result(text, "stop", (), (1,), (1,), (1,), 0.1)


class Ensemble:
    """Models that end some rows, the second first, and then what `last` says happens."""

    def __init__(self, last):
        self.last = last

    def stream(self, texts, **settings):
        yield 1, result("two")
        yield 0, result("one")
        yield 3, result("four")
        if self.last is not None:
            raise self.last
        yield 2, result("three")


@pytest.fixture
def generate(tmp_path, monkeypatch):
    """Run the command on four prompts with what happens after three of them."""
    monkeypatch.chdir(tmp_path)
    rows = (json.dumps({"id": name, "prompt": "x"}) + "\n" for name in "abcd")
    (tmp_path / "in.jsonl").write_text("".join(rows))

    def command(last, out="out.parquet"):
        monkeypatch.setattr(decoding, "load", lambda models, loaded: Ensemble(last))
        monkeypatch.setattr("sys.argv", [*COMMAND, out])
        return run(app)

    return command


def texts(path="out.parquet"):
    return [(row["id"], row["text"]) for row in pq.read_table(path).to_pylist()]


def test_control_c_keeps_the_rows_that_ended_in_their_order(generate, capsys):
    assert generate(KeyboardInterrupt()) == INTERRUPTED
    assert capsys.readouterr().err == "stopped after 3 of 4 prompts; they are in out.parquet\n"
    assert texts() == [("a", "one"), ("b", "two"), ("d", "four")]


def test_a_crash_keeps_them_too(generate, capsys):
    with pytest.raises(ZeroDivisionError):
        generate(ZeroDivisionError())
    assert "stopped after 3 of 4 prompts; they are in out.parquet" in capsys.readouterr().err
    assert len(texts()) == 3


def test_the_closing_line_says_that_a_file_was_replaced(generate, capsys):
    for end in ("written to out.parquet", "replaced out.parquet"):
        assert generate(None) == 0
        assert capsys.readouterr().out == f"4 prompts continued, 0 of them failed; {end}\n"
    assert len(texts()) == 4


def test_other_endings_are_refused_with_the_name_to_give(generate, capsys):
    assert generate(None, "out.csv") == 2
    assert "--out 'out.csv' does not end in .parquet" in (told := capsys.readouterr().err)
    assert "call it 'out.parquet'" in told


def test_no_folder_is_made_in_the_root_but_below_others(tmp_path):
    with pytest.raises(UserError, match="'/nowhere_at_all' does not exist; check the path"):
        check_out(Path("/nowhere_at_all/x.parquet"))
    check_out(tmp_path / "new/x.parquet")
    assert (tmp_path / "new").is_dir()
