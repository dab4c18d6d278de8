"""`adafuse generate` and `adafuse show` as a user runs them."""

import json

import pyarrow.parquet as pq
import pytest

from tests.cli.terminal import adafuse
from tests.conftest import toy_path

PAIR = ["--model", toy_path("mistral"), "--model", toy_path("llama")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with two prompts and their decoded trace."""
    folder = tmp_path_factory.mktemp("generate")
    rows = [
        {"id": "second", "prompt": "Question: Who?\nAnswer:"},
        {"id": "first", "prompt": "Question: Where?\nAnswer:"},
    ]
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--prompts", "in.jsonl", "--out", "out.parquet", "--stop", r"\n"]
    options += ["--max-new-tokens", "12", "--branching", "2", "--weight", "2", "--weight", "1"]
    done = adafuse("generate", *PAIR, *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "2 prompts continued, 0 of them failed" in done.stdout
    return folder


def test_there_is_one_row_per_prompt_in_input_order(folder):
    table = pq.read_table(folder / "out.parquet")
    assert table.column("id").to_pylist() == ["second", "first"]
    assert {"id", "text", "stop_reason", "error", "rounds"} <= set(table.column_names)


def test_rounds_say_who_proposed_what_and_how_it_scored(folder):
    for row in pq.read_table(folder / "out.parquet").to_pylist():
        for taken in row["rounds"]:
            best = min(candidate["fused"] for candidate in taken["candidates"])
            assert taken["candidates"][taken["selected"]]["fused"] == best
            for candidate in taken["candidates"]:
                assert set(candidate) == {"text", "ends", "nll", "fused", "proposers"}
                first, second = candidate["nll"]
                assert candidate["fused"] == pytest.approx((2 * first + second) / 3)
                assert candidate["proposers"]


def test_the_file_says_how_it_was_made(folder):
    metadata = json.loads(pq.read_schema(folder / "out.parquet").metadata[b"adafuse"])
    assert metadata["settings"]["branching"] == 2
    assert metadata["settings"]["models"] == PAIR[1::2]
    assert metadata["versions"]["torch"]


def test_show_prints_one_example_round_by_round(folder):
    done = adafuse("show", "out.parquet", "--id", "first", cwd=folder)
    assert done.returncode == 0
    assert "example first" in done.stdout
    assert "round 1" in done.stdout
    assert "=>" in done.stdout
    missing = adafuse("show", "out.parquet", "--id", "third", cwd=folder)
    assert missing.returncode == 2
    assert "no example 'third'" in missing.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--tau", "-0.5"], "tau must be greater than or equal to 0, not -0.5"),
        (["--max-words", "0"], 'max_words must be a whole number above 0, or "adaptive", not 0'),
        (["--max-words", "all"], "max_words must be a whole number above 0, or"),
        (["--method", "fixed_length", "--max-words", "adaptive"], "unknown option 'max_words'"),
        (["--branching", "0"], "branching must be greater than or equal to 1, not 0"),
        (["--method", "fuse"], "unknown method 'fuse'"),
        (["--method", "best_of"], "method 'best_of' chooses between runs of the workflow"),
        (["--method", "single"], "method single needs exactly 1 model, not 2"),
        (["--method", "fixed_length", "--tau", "1"], "fixed_length: unknown option 'tau'"),
        (["--weight", "1"], "1 weights for 2 models"),
        (["--prompts", "none.jsonl"], "prompts file 'none.jsonl' does not exist"),
        (["--model", "/nowhere"], "model '/nowhere' is not a folder"),
        (["--out", "/proc/nowhere/x.parquet"], "cannot be written"),
        (["--out", "."], "is a folder"),
        (["--engine", "fast"], "engine must be 'tree' or 'reference'"),
        (["--device", "gpu"], "unknown device 'gpu'"),
        (["--device", "cuda:98+cuda:99"], "no device 'cuda:98': "),
        (["--quantization", "int3"], "unknown quantization 'int3'; known are: int8, int4"),
        (["--trust-remote-code", "x"], "--trust-remote-code names 'x', which is not a --model"),
        (["--stop", ""], "must not hold an empty string"),
    ],
)
def test_bad_input_is_one_sentence_and_a_status(folder, arguments, sentence):
    given = ["--prompts", "in.jsonl", "--out", "bad.parquet", *arguments]
    done = adafuse("generate", *PAIR, *given, cwd=folder)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().split("\n")) == 1
    assert not (folder / "bad.parquet").exists()


def test_an_unknown_flag_is_refused(folder):
    done = adafuse("generate", *PAIR, "--tauu", "1", cwd=folder)
    assert done.returncode == 2
    assert "--tauu" in done.stderr


def test_methods_are_listed_with_their_options(folder):
    done = adafuse("methods", cwd=folder)
    assert "adafuse: " in done.stdout
    assert "    tau (default 0.7)" in done.stdout
    assert "best_of: " in done.stdout
