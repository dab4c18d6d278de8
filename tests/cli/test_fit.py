"""`adafuse fit` as a user runs it, and what it makes of bad input."""

import json

import pytest

from adafuse.development.gate_file import prompt_hashes
from adafuse.storage.journal import journal_rows
from tests.cli.terminal import adafuse
from tests.conftest import TOY_MODELS, toy_path
from tests.support.interrupted import Interrupted

PAIR = ["--model", toy_path("mistral"), "--model", toy_path("llama")]
TEMPLATE = r"Translate English to German.\nQuestion: {question}\nAnswer:"


def fit(folder, *options, rows="dev.jsonl", scorer="translation_13a", models=PAIR):
    given = ["--rows", rows, "--scorer", scorer, "--out", "gate.json", "--template", TEMPLATE]
    return adafuse("fit", *models, *given, "--stop", r"\n", *options, cwd=folder)


@pytest.fixture
def folder(tmp_path):
    """A folder with a few development rows."""
    rows = (TOY_MODELS.parent / "benchmarks/development/toy_en_de.jsonl").read_text().split("\n")
    (tmp_path / "dev.jsonl").write_text("\n".join(rows[:8]))
    return tmp_path


def test_a_gate_is_written_decoded_with_and_shown(folder):
    done = fit(folder, "--max-new-tokens", "32")
    assert done.returncode == 0, done.stderr
    assert "rounds of 8 rows: " in done.stdout
    gate = json.loads((folder / "gate.json").read_text())
    lines = (folder / "dev.jsonl").read_text().splitlines()
    asked = [json.loads(line)["question"] for line in lines]
    hashes = {*prompt_hashes([*asked, *(f"Q: {each}\nA:" for each in asked)]).split()}
    assert len(hashes & {*gate["fitted"]["prompts"].split()}) == 8, "of questions, not of prompts"
    gate["bias"] = [0.5, -0.5]  # so that there is something to see
    (folder / "gate.json").write_text(json.dumps(gate))
    learned = ["--option", "fusion=learned", "--option", "gate=gate.json", "--max-new-tokens", "16"]
    prompt = ["--prompts", "in.jsonl", "--out", "out.parquet"]
    (folder / "in.jsonl").write_text('{"id": "one", "prompt": "Question: Who?"}\n')
    done = adafuse("generate", *PAIR, *learned, *prompt, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "; weights 0." in adafuse("show", "out.parquet", cwd=folder).stdout


@pytest.mark.parametrize("certify", [[], ["--certify"]])
def test_an_interrupted_fit_goes_on(folder, monkeypatch, certify):
    journal, options = folder / "gate.json.journal", [*certify, "--max-new-tokens", "16"]
    journal.write_text("my notes\n")
    refused = fit(folder, *options)
    assert refused.stderr == (
        "error: 'gate.json.journal' is another file, and finished texts would be kept under its"
        " name; give --out another name\n"
    )
    journal.unlink()
    decoding = Interrupted(monkeypatch, 5, 20)
    for texts in decoding.stops.copy():
        stopped = fit(folder, *options)
        assert stopped.returncode == 130
        assert stopped.stderr == "stopped; the same command goes on with what is decoded\n"
        assert len(journal_rows(journal)) == texts
        assert not (folder / "gate.json").exists()
    done = fit(folder, *options)
    assert done.returncode == 0, done.stderr
    written = (folder / "gate.json").read_text()
    assert not journal.exists()
    whole, decoding.texts = decoding.texts, 0
    assert fit(folder, *options).returncode == 0
    assert decoding.texts == whole
    if certify:  # the numbers of a gate depend on which rows are decoded together, by rounding
        assert (folder / "gate.json").read_text() == written


def test_a_certificate_is_written_and_said(folder):
    done = fit(folder, "--certify", "--max-new-tokens", "16", "--alpha", "0.1")
    assert done.returncode == 0, done.stderr
    assert "the member that leads: not certified (8 rows, alpha 0.1, approximate)" in done.stdout
    found = json.loads((folder / "gate.json").read_text())
    assert found["sentence"] == done.stdout.strip()
    assert (found["margin"], found["alpha"], found["rows"]) == (1.0, 0.1, "dev")
    assert found["candidates"][0]["run"] == "adafuse"


@pytest.mark.parametrize(
    ("options", "more", "says"),
    [
        (["--alpha", "0.1"], {}, "--alpha 0.1 changes nothing without --certify; remove it"),
        (["--certify", "--objective", "reward"], {}, "--objective reward changes nothing with"),
        (["--certify", "--margin", "0"], {}, "--margin 0 is not above 0 and below 100"),
        (["--template", "Q:"], {}, "--template 'Q:' has no {question}"),
        ([], {"scorer": "bleu"}, "unknown scorer 'bleu'"),
        ([], {"scorer": "gsm8k"}, "has no number; correct it or use another scorer"),
        ([], {"rows": "none.jsonl"}, "'none.jsonl' cannot be read"),
        (["--option", "taus=1"], {}, "unknown option 'taus'"),
        (["--thoughts", "{begin: a, end: b}"], {}, "changes nothing, because all prompts are"),
        (["--out", "dev.jsonl"], {}, "'dev.jsonl' is a file that is read here; give another name"),
        (["--method", "unite"], {}, "method unite cannot be fitted"),
        (["--objective", "x"], {}, "unknown objective 'x'"),
        ([], {"models": PAIR[:2]}, "only one was given; give two"),
    ],
)
def test_bad_input_is_one_sentence(folder, options, more, says):
    done = fit(folder, *options, **more)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert not (folder / "gate.json").exists()
