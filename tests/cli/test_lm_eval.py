"""`adafuse lm-eval` as a user runs it, beside `adafuse generate` on the same prompts."""

import json
import os
import subprocess
import sys

import pytest

from adafuse.storage.parquet import read_rows
from tests.conftest import toy_path
from tests.lm_eval.tasks import ROOT

pytest.importorskip("lm_eval", reason="needs adafuse[lm-eval]")
pytestmark = pytest.mark.soak  # the harness looks through thousands of tasks first

PAIR = (toy_path("mistral"), toy_path("llama"))
TASKS = "docs/lm-eval/toy_qa.yaml,docs/lm-eval/toy_choice.yaml"


def adafuse(*arguments, cache):
    """Run the command line in the checkout."""
    command = [sys.executable, "-m", "adafuse", *map(str, arguments)]
    environment = {**os.environ, "HF_HOME": str(cache), "HF_HUB_OFFLINE": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def lm_eval(arguments, *others, cache):
    """Run the harness with these `--model_args`."""
    named = ("--model", "adafuse", "--model_args", arguments, "--tasks", TASKS)
    return adafuse("lm-eval", *named, *others, cache=cache)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the results, samples and trace of both tasks, with two few-shot examples."""
    folder = tmp_path_factory.mktemp("lm_eval")
    done = lm_eval(
        f"models={'+'.join(PAIR)},method=adafuse,tau=0.6,branching=2,trace={folder}/t.parquet",
        *("--num_fewshot", 2, "--limit", 6, "--batch_size", 4),
        *("--output_path", folder / "out.json", "--log_samples"),
        cache=folder,
    )
    assert done.returncode == 0, done.stderr
    assert "toy_qa" in done.stdout and "toy_choice" in done.stdout
    return folder


def samples(folder, task):
    """What the harness asked and was answered."""
    (path,) = folder.glob(f"samples_{task}_*.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_texts_are_those_of_generate_on_the_same_prompts(folder):
    rows = samples(folder, "toy_qa")
    prompts = [
        {"id": row["doc_id"], "prompt": row["arguments"]["gen_args_0"]["arg_0"]} for row in rows
    ]
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in prompts))
    done = adafuse(
        "generate", "--model", PAIR[0], "--model", PAIR[1], "--prompts", folder / "in.jsonl",
        "--out", folder / "generated.parquet", "--tau", 0.6, "--branching", 2,
        "--max-new-tokens", 24, "--stop", r"\n", cache=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    generated = {row["id"]: row["text"] for row in read_rows(folder / "generated.parquet")}
    assert {str(row["doc_id"]): row["resps"][0][0] for row in rows} == generated
    assert all(prompt["prompt"].count("Question:") == 3 for prompt in prompts)


def test_the_trace_holds_the_rounds_of_every_request(folder):
    rows = {row["id"]: row for row in read_rows(folder / "t.parquet")}
    assert {f"toy_qa/{row['doc_id']}/0" for row in samples(folder, "toy_qa")} == set(rows)
    assert all(row["rounds"] for row in rows.values())


def test_results_name_models_method_and_options(folder):
    (path,) = folder.glob("out_*.json")
    info = json.loads(path.read_text())["config"]["adafuse"]
    assert info["models"] == list(PAIR)
    assert info["method"] == "adafuse"
    assert info["branching"] == 2


def test_choices_are_answered_with_log_likelihoods(folder):
    for row in samples(folder, "toy_choice"):
        values = [float(response[0][0]) for response in row["resps"]]
        assert len(values) == 4 and max(values) < 0
        right = values.index(max(values)) == row["doc"]["label"]
        assert row["acc"] == float(right)


def test_a_bad_argument_is_one_sentence_without_a_traceback(tmp_path):
    done = lm_eval(f"models={'+'.join(PAIR)},tua=0.6", cache=tmp_path)
    assert done.returncode == 2
    (said,) = (line for line in done.stderr.split("\n") if line.startswith("error:"))
    assert "unknown argument 'tua'; known are: " in said and " models, weights, " in said
    assert "did you mean 'tau'?" in said
    assert "Traceback" not in done.stderr


def test_help_is_that_of_the_harness(tmp_path):
    done = adafuse("lm-eval", "run", "--help", cache=tmp_path)
    assert done.returncode == 0
    assert "--apply_chat_template" in done.stdout
