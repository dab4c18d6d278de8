"""`adafuse advise` as a user runs it."""

import json
import re

import pytest

from adafuse.benchmarks.rows import read_rows
from adafuse.records.views import one_line
from tests.cli.terminal import adafuse
from tests.conftest import TOY_MODELS, toy_path

PAIR = ["--model", toy_path("mistral"), "--model", toy_path("llama")]
GIVEN = ["--rows", "dev.jsonl", "--scorer", "nq", "--template", r"Question: {question}\nAnswer:"]
GIVEN += ["--stop", r"\n", "--max-new-tokens", "16"]


@pytest.fixture
def folder(tmp_path):
    """A folder with a few development rows."""
    rows = (TOY_MODELS.parent / "benchmarks/development/toy_qa.jsonl").read_text().split("\n")
    given = [row | {"answer": [*row["answer"], "or this"]} for row in map(json.loads, rows[:12])]
    (tmp_path / "dev.jsonl").write_text("\n".join(map(json.dumps, given)))
    return tmp_path


def test_a_table_and_a_verdict_are_printed_and_json_has_the_same(folder):
    told = adafuse("advise", *PAIR, *GIVEN, cwd=folder)
    assert told.returncode == 0, told.stderr
    assert "the better answer of each row" in told.stdout
    assert "12 rows; agreement " in told.stdout
    assert re.search(
        r"fused, a row takes \d+\.\d times as long as with the models one after the other, and"
        r" \d+\.\d times as long as with (mistral|llama) alone\n",
        told.stdout,
    )
    assert re.search(r"│ (stop|end token|limit) \d+ %", told.stdout)
    keep = ["--answers", "answers.jsonl", "--json"]
    found = json.loads(adafuse("advise", *PAIR, *GIVEN, *keep, cwd=folder).stdout)
    kept = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    ids = [row.id for row in read_rows(folder / "dev.jsonl")]
    assert [row["id"] for row in kept] == ids
    names = [toy_path("mistral"), toy_path("llama"), "adafuse"]
    assert [run["run"] for run in kept[0]["runs"]] == names
    values = [row["runs"][2]["value"] for row in kept]
    assert len(kept) == 12 and 100 * sum(values) / 12 == pytest.approx(found["fused"]["value"])
    ended = [row["runs"][0]["stop_reason"] for row in kept]
    shares = {end: pytest.approx(100 * ended.count(end) / 12) for end in set(ended)}
    assert found["members"][0]["ends"] == shares and found["answers"] == []
    assert found["verdict"] in told.stdout
    assert f"{found['ceiling']:.1f}" in told.stdout
    assert told.stdout.count("prompt: ") == len(found["samples"]) == 3
    prompts = {one_line(row["prompt"]) for row in kept}  # of which none is too long to be shown
    assert {*re.findall(r"^prompt: (.*)$", told.stdout, re.MULTILINE)} <= prompts
    assert f"  accepted: {' | '.join(found['samples'][0]['accepted'])}\n" in told.stdout
    assert f"  adafuse: {found['samples'][0]['texts'][-1]}".rstrip() in told.stdout


def test_a_model_is_called_as_its_folder_whatever_signs_that_has(folder):
    names = ["both[q4]", "both:100:"]
    for name, path in zip(names, PAIR[1::2], strict=True):
        (folder / name).symlink_to(path)
    given = ["--model", names[0], "--model", names[1], *GIVEN, "--max-new-tokens", "1"]
    told = adafuse("advise", *given, cwd=folder)
    assert told.returncode == 0, told.stderr
    assert all(f"│ {name} " in told.stdout for name in names), told.stdout


def test_an_answer_that_is_cut_in_a_sample_says_so(folder):
    (folder / "dev.jsonl").write_text(json.dumps({"question": "Who?", "answer": "x" * 101}))
    told = adafuse("advise", *PAIR, *GIVEN, "--max-new-tokens", "1", cwd=folder)
    assert f"  accepted: {'x' * 100}...\n" in told.stdout


def test_a_second_slot_in_the_template_is_told(folder):
    given = [*GIVEN, "--template", "{question} {contxt}", "--max-new-tokens", "2"]
    told = adafuse("advise", *PAIR, *given, cwd=folder)
    assert told.returncode == 0
    says = "warning: --template: {contxt} stays as it is; only {question} is filled in\n"
    assert says in told.stderr


def test_rows_that_can_never_be_right_and_copies_are_told(folder):
    lines = (folder / "dev.jsonl").read_text().splitlines()
    more = ['{"question": "q?", "answer": "the"}', '{"question": "Q?", "answer": "x"}']
    (folder / "dev.jsonl").write_text("\n".join([*lines, *more]))
    told = adafuse("advise", *PAIR, *GIVEN, cwd=folder)
    assert told.returncode == 0
    assert "warning: dev.jsonl: 1 of 14 rows can never be right, for scorer 'nq'" in told.stderr
    assert "warning: dev.jsonl: 1 of 14 rows have the question of an earlier one" in told.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--method", "single"], "method single needs exactly 1 model, not 2"),
        (["--template", "Q:"], "--template 'Q:' has no {question}"),
        (["--scorer", "gsm8k"], "has no number; correct it or use another scorer"),
        (["--answers", "dev.jsonl"], "'dev.jsonl' is a file that is read here; give another name"),
        (["--thoughts", "{begin: a, end: b}"], "changes nothing, because all prompts are texts"),
    ],
)
def test_bad_input_is_one_sentence(folder, options, says):
    done = adafuse("advise", *PAIR, *GIVEN, *options, cwd=folder)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
