"""The file of `adafuse generate`, above all when decoding stops before the end."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from adafuse.cli import generate as decoding
from adafuse.cli.errors import INTERRUPTED, run
from adafuse.cli.main import app
from adafuse.cli.result_file import check_out
from adafuse.errors import UserError
from adafuse.models import placement
from adafuse.records.result import Result
from adafuse.storage.journal import journal_rows
from tests.cli.terminal import adafuse
from tests.conftest import toy_path

COMMAND = ["adafuse", "generate", "--model", "org/none", "--prompts", "in.jsonl", "--out"]


class Ensemble:
    """Models that repeat a prompt in capitals, the second first, and fail or stop when told to."""

    def __init__(self):
        self.decoded = []
        self.stop = None
        self.failing = ()
        self.served_by = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def stream(self, prompts, **settings):
        order = [1, 0, 3, 2] if len(prompts) == 4 else range(len(prompts))
        for count, index in enumerate(order):
            if self.stop is not None and count == 3:
                raise self.stop
            self.decoded.append(prompts[index])
            failed = prompts[index] in self.failing
            reason, error = ("error", "it failed") if failed else ("stop", None)
            text = prompts[index].upper()
            yield index, Result(text, reason, (), (1,), (1,), (1,), 0.1, error=error)


@pytest.fixture
def models(monkeypatch):
    """What the command loads as its models."""
    fake = Ensemble()
    monkeypatch.setattr(decoding, "load", lambda *given: fake)
    return fake


@pytest.fixture
def generate(models, tmp_path, monkeypatch):
    """Run the command on four prompts, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    rows = (json.dumps({"id": name, "prompt": f"say {name}"}) + "\n" for name in "abcd")
    (tmp_path / "in.jsonl").write_text("".join(rows))

    def command(*options, out="out.parquet"):
        monkeypatch.setattr("sys.argv", [*COMMAND, out, *options])
        return run(app)

    return command


WHOLE = [(name, f"SAY {name.upper()}") for name in "abcd"]
STOPPED = "stopped after 3 of 4 prompts; the same command with --resume continues\n"


def texts(path="out.parquet"):
    return [(row["id"], row["text"]) for row in pq.read_table(path).to_pylist()]


def test_control_c_keeps_what_ended_and_the_same_command_goes_on(generate, models, capsys):
    models.stop = KeyboardInterrupt()
    assert generate() == INTERRUPTED
    assert capsys.readouterr().err == STOPPED
    assert not Path("out.parquet").exists()
    models.stop = None
    assert generate() == 2
    told = "'out.journal' holds 3 prompts of an earlier command; add --resume to continue it"
    assert told in capsys.readouterr().err
    models.decoded.clear()
    assert generate("--resume", "--json") == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["id"], row["text"]) for row in printed] == texts() == WHOLE
    assert models.decoded == ["say c"]
    assert not Path("out.journal").exists()


def test_a_crash_keeps_them_and_the_file_before(generate, models, capsys):
    assert generate() == 0
    models.stop = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        generate()
    assert STOPPED in capsys.readouterr().err
    assert texts() == WHOLE
    assert len(journal_rows(Path("out.journal"))) == 3


def test_with_other_settings_or_files_nothing_is_taken_over(
    generate, models, capsys, tmp_path, monkeypatch
):
    models.stop = KeyboardInterrupt()
    generate()
    models.stop = None
    models.decoded.clear()
    assert generate("--resume", "--max-new-tokens", "9") == 2
    told = "none of the 3 prompts in 'out.journal' is one of this command's (other models, setti"
    assert told in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(placement, "devices", lambda name: (torch.device("cuda:0"),))
        assert generate("--resume") == 2  # bfloat16 there, float32 here
    assert told in capsys.readouterr().err
    (tmp_path / "gate.json").write_text("{}")
    Path("out.journal").unlink()
    learned = ["--fusion", "learned", "--option", "gate=gate.json"]
    models.stop = KeyboardInterrupt()
    generate(*learned)
    (tmp_path / "gate.json").write_text('{"fitted": "again"}')
    assert generate("--resume", *learned) == 2
    assert "none of the 3 prompts in" in capsys.readouterr().err
    assert len(models.decoded) == 3


def test_weights_of_the_same_size_and_time_are_not_mixed_into_one_file(
    generate, models, capsys, tmp_path
):
    weights = tmp_path / "model/model.safetensors"
    weights.parent.mkdir()
    weights.write_bytes(bytes(1000))
    before = weights.stat()
    models.stop = KeyboardInterrupt()
    generate("--model", "model")
    weights.write_bytes(bytes(999) + b"x")
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    models.stop = None
    models.decoded.clear()
    assert generate("--resume", "--model", "model") == 2
    assert "none of the 3 prompts in 'out.journal'" in capsys.readouterr().err
    weights.write_bytes(bytes(1000))  # the first ones again, at another time and place
    weights.parent.rename(tmp_path / "moved")
    assert generate("--resume", "--model", "moved") == 0
    assert models.decoded == ["say c"]


def test_a_folder_that_is_called_like_the_method_is_none_of_its_files(generate, models, tmp_path):
    (tmp_path / "adafuse").mkdir()
    models.stop = KeyboardInterrupt()
    generate()
    models.stop = None
    (tmp_path / "adafuse/new.py").touch()
    assert generate("--resume") == 0
    assert texts() == WHOLE


def test_a_file_that_another_command_has_just_made_whole_is_not_made_again(
    generate, models, capsys, monkeypatch
):
    models.stop = KeyboardInterrupt()
    generate()
    models.stop = None

    def load_slowly(*given):  # meanwhile the other one ends
        monkeypatch.setattr(decoding, "load", lambda *given: models)
        assert generate("--resume") == 0
        models.decoded.clear()
        return models

    monkeypatch.setattr(decoding, "load", load_slowly)
    assert generate("--resume") == 2
    assert "'out.parquet' is complete, so there is nothing to resume" in capsys.readouterr().err
    assert not models.decoded


def test_rows_keep_the_ids_of_the_command_that_goes_on(generate, models):
    """Prompts may be equal, and move: their texts are found by what they say."""
    same = [{"id": name, "prompt": f"say {name in 'ab'}"} for name in "abcd"]
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in same))
    models.stop = KeyboardInterrupt()
    generate()
    models.stop = None
    moved = [{"id": name, "prompt": row["prompt"]} for name, row in zip("wxyz", same, strict=True)]
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in moved))
    assert generate("--resume") == 0
    assert texts() == [("w", "SAY TRUE"), ("x", "SAY TRUE"), ("y", "SAY FALSE"), ("z", "SAY FALSE")]


def test_rows_of_other_prompts_stay_in_the_journal(generate, models):
    models.stop = KeyboardInterrupt()
    generate()
    models.stop = None
    Path("in.jsonl").write_text(json.dumps({"id": "a", "prompt": "say a"}) + "\n")
    assert generate("--resume") == 0
    assert texts() == WHOLE[:1]
    assert len(journal_rows(Path("out.journal"))) == 3


def test_a_whole_file_is_not_gone_on_with(generate, models, capsys):
    assert generate("--resume") == 0
    assert generate("--resume") == 2
    assert "'out.parquet' is complete, so there is nothing to resume" in capsys.readouterr().err
    assert len(models.decoded) == 4


def test_what_failed_at_the_end_is_tried_again(generate, models, capsys):
    models.failing = {"say a"}
    assert generate() == 1
    told = "4 prompts continued, 1 of them failed, which --resume tries again; written to"
    assert told in capsys.readouterr().out
    models.failing = ()
    models.decoded.clear()
    assert generate("--resume") == 0
    assert models.decoded == ["say a"]
    assert texts() == WHOLE


def test_what_failed_is_decoded_again(generate, models):
    models.stop, models.failing = KeyboardInterrupt(), {"say a"}
    generate()
    models.stop, models.failing = None, ()
    models.decoded.clear()
    assert generate("--resume") == 0
    assert sorted(models.decoded) == ["say a", "say c"]
    assert texts() == WHOLE


def test_a_prompt_that_no_file_can_hold_is_refused_before_any_is_decoded(generate, models, capsys):
    row = {"id": "e", "prompt": "half a pair: \ud83d"}
    with Path("in.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    assert generate() == 2
    told = capsys.readouterr().err
    assert "in.jsonl, line 5: prompt: it holds half of a surrogate pair, not a char" in told
    assert not models.decoded


def test_to_go_on_takes_a_file(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [*COMMAND[:4], "--prompt", "x", "--resume"])
    assert run(app) == 2
    assert "--resume continues a file; name it with --out" in capsys.readouterr().err


@pytest.mark.soak
def test_a_kill_loses_no_prompt_that_ended(tmp_path):
    """With real models, and with the text of a command that nobody killed."""
    rows = [{"id": str(n), "prompt": f"Question: Who is {n}?\nAnswer:"} for n in range(12)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["generate", "--model", toy_path("mistral"), "--model", toy_path("llama")]
    command += ["--prompts", "in.jsonl", "--batch-size", "1", "--max-new-tokens", "24", "--out"]
    whole = adafuse(*command, "whole.parquet", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    journal = tmp_path / "out.journal"
    running = subprocess.Popen(
        [sys.executable, "-m", "adafuse", *command, "out.parquet"], cwd=tmp_path
    )
    while len(journal_rows(journal)) < 3:
        assert running.poll() is None
        time.sleep(0.01)
    running.kill()
    running.wait()
    kept = len(journal_rows(journal))
    done = adafuse(*command, "out.parquet", "--resume", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert 3 <= kept < 12
    assert texts(tmp_path / "out.parquet") == texts(tmp_path / "whole.parquet")


def test_the_closing_line_says_that_a_file_was_replaced(generate, capsys):
    for end in ("written to out.parquet", "replaced out.parquet"):
        assert generate() == 0
        assert capsys.readouterr().out == f"4 prompts continued, 0 of them failed; {end}\n"
    assert len(texts()) == 4


def test_other_endings_are_refused_with_the_name_to_give(generate, capsys):
    assert generate(out="out.csv") == 2
    assert "--out 'out.csv' does not end in .parquet" in (told := capsys.readouterr().err)
    assert "call it 'out.parquet'" in told


@pytest.mark.parametrize("name", ["a.parquet", "a.journal"])
def test_a_file_of_prompts_is_not_replaced(generate, tmp_path, capsys, name):
    (tmp_path / "in.jsonl").rename(name)
    assert generate("--prompts", name, out="a.parquet") == 2
    assert f"'{name}' is a file that is read here; give another name" in capsys.readouterr().err
    assert Path(name).read_text().count("say") == 4


def test_a_journal_that_is_a_folder_is_refused_before_any_is_decoded(generate, models, capsys):
    Path("out.journal").mkdir()
    assert generate() == 2
    assert "'out.journal' is a folder" in capsys.readouterr().err and not models.decoded


def test_another_file_in_the_place_of_the_journal_is_not_replaced(generate, models, capsys):
    Path("out.journal").write_text("my notes\n")
    assert generate() == 2
    assert "'out.journal' is another file" in capsys.readouterr().err and not models.decoded
    assert Path("out.journal").read_text() == "my notes\n"
    for torn in ("", "0123", "0123456789abcdef {"):
        Path("out.journal").write_text(torn)
        assert generate() == 0


def test_no_folder_is_made_in_the_root_but_below_others(tmp_path):
    with pytest.raises(UserError, match="'/nowhere_at_all' does not exist; check the path"):
        check_out(Path("/nowhere_at_all/x.parquet"))
    check_out(tmp_path / "new/x.parquet")
    assert (tmp_path / "new").is_dir()
