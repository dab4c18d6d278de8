"""`adafuse score` and `adafuse audit` as a person uses them."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from scipy.stats import binomtest
from typer.testing import CliRunner, Result

from adafuse.cli.main import app

ROWS = [
    {"id": "a", "question": "Where?", "answer": ["Paris", "the city of Paris"]},
    {"id": "b", "question": "When?", "answer": "1999"},
    {"question": "Why?", "answer": "because"},
]
PREDICTIONS = [{"id": "a", "text": "not Paris"}, {"question": "Why?", "text": "Because."}]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with refs.jsonl and preds.jsonl, in which the commands run."""
    monkeypatch.chdir(tmp_path)
    for name, rows in (("refs", ROWS), ("preds", PREDICTIONS)):
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def adafuse(command: str, *options: str, benchmark: str = "natural_questions") -> Result:
    given = ["--benchmark", benchmark, "--predictions", "preds.jsonl", "--references", "refs.jsonl"]
    return CliRunner().invoke(app, [command, *given, *options])


def test_the_json_holds_metrics_with_intervals_and_what_counts_as_wrong(files: Path) -> None:
    done = adafuse("score", "--out", "out/score.json")
    assert done.exit_code == 0, done.exception
    score = json.loads(Path("out/score.json").read_text())
    assert (score["benchmark"], score["protocol"]) == ("natural_questions", "strict")
    assert (score["n"], score["missing"], score["failed"]) == (3, 1, 0)
    assert score["metrics"]["exact_match"]["value"] == pytest.approx(100 / 3)
    assert score["metrics"].keys() == {"exact_match", "f1"}
    assert all(each.keys() == {"value", "low", "high"} for each in score["metrics"].values())
    assert "n = 3" in done.stdout and "33.33" in done.stdout and "1 missing" in done.stdout


def test_predictions_are_tested_against_others_of_the_same_rows(files: Path) -> None:
    def write(name: str, rows: Iterable[dict[str, object]]) -> None:
        Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    write("refs.jsonl", [{"id": n, "question": f"q{n}", "answer": "yes"} for n in range(100)])
    for name, right in (("preds", range(40)), ("base", range(20, 100))):
        texts = [{"id": n, "text": "yes" if n in right else "no"} for n in range(100)]
        write(f"{name}.jsonl", reversed(texts))
    done = adafuse("score", "--against", "base.jsonl", "--out", "both.json")
    assert done.exit_code == 0, done.exception
    assert "exact_match of preds minus base: -40.00 [-54.16, -23.22] points" in done.stdout
    assert "20 rows only preds has right, 60 only base): worse\n" in done.stdout
    test = json.loads(Path("both.json").read_text())["comparison"]
    assert (test["wins"], test["losses"]) == (20, 60)
    assert test["p"] == pytest.approx(binomtest(20, 80).pvalue)
    write("base.jsonl", [{"id": n, "text": "yes" if n > 55 else "no"} for n in range(100)])
    done = adafuse("score", "--against", "base.jsonl")
    assert "undecided\nThese rows do not show which is better. Nor do they show" in done.stdout
    write("base.jsonl", [{"id": 0, "text": "yes"}])
    done = adafuse("score", "--against", "base.jsonl")
    assert "base has no text for 99 of 100 rows" in str(done.exception)
    assert "file of --predictions" in str(adafuse("score", "--against", "preds.jsonl").exception)


def test_fields_of_other_names_are_named_by_options(files: Path) -> None:
    Path("refs.jsonl").write_text('{"Nr": 1, "Frage": "q", "Gold": "Wien | Vienna"}\n')
    Path("preds.jsonl").write_text('{"id": 1, "text": "Vienna"}\n')
    names = ["--field", "id=Nr", "--field", "question=Frage", "--field", "answer=Gold"]
    done = adafuse("score", *names)
    assert "0.00" in done.stdout
    assert "1 of 1 rows have one accepted answer with '|' in it" in done.stderr
    for command in ("score", "audit"):
        done = adafuse(command, *names, "--field", "answer_separator=|")
        assert "100.00" in done.stdout and not done.stderr
    done = adafuse("score", "--field", "anwser=Gold")
    assert "did you mean 'answer'?" in str(done.exception)
    done = adafuse("score", *names, "--field", "id=Frage")
    assert "--field names one of id, question, answer twice" in str(done.exception)


def test_published_is_asked_for_by_name(files: Path) -> None:
    assert "66.67" in adafuse("score", "--protocol", "published").stdout


def test_worked_examples_are_left_out_and_said_so_beside_n(files: Path) -> None:
    Path("shots.txt").write_text("a\n")
    done = adafuse("score", "--exclude", "shots.txt")
    assert "n = 2 (1 few-shot examples left out)" in done.stdout
    done = adafuse("score", "--exclude", "shots.txt", "--protocol", "published")
    assert "n = 3 (published keeps the 1 rows to exclude)" in done.stdout


def test_references_that_are_copies_are_told(files: Path) -> None:
    assert "warning" not in adafuse("score").stderr
    refs = Path("refs.jsonl")
    refs.write_text(refs.read_text() + json.dumps(ROWS[1] | {"id": "c"}) + "\n")
    told = adafuse("score").stderr
    assert told.startswith("warning: refs.jsonl: 1 of 4 rows are copies of earlier ones")


@pytest.mark.parametrize(
    ("options", "benchmark", "sentence"),
    [
        (["--protocol", "lax"], "squad", "unknown protocol 'lax'; known are: strict, published"),
        ([], "nope", "unknown benchmark 'nope'; known are: natural_questions, triviaqa, squad"),
        ([], "toy_qa", "to score any other, name its scorer in --benchmark or --scorer: nq, "),
        (["--scorer", "rouge"], "mine", "--scorer: unknown scorer 'rouge'"),
        ([], "gsm8k", "the gold answer 'Paris' of row 'a' has no number"),
    ],
)
def test_bad_input_is_one_sentence(
    files: Path, options: list[str], benchmark: str, sentence: str
) -> None:
    assert sentence in str(adafuse("score", *options, benchmark=benchmark).exception)


@pytest.mark.parametrize("command", ["score --out", "audit --csv"])
@pytest.mark.parametrize("name", ["preds.jsonl", "refs.jsonl"])
def test_a_file_that_is_read_is_not_replaced(files: Path, command: str, name: str) -> None:
    before = (files / name).read_text()
    assert f"{name!r} is a file that is read here" in str(adafuse(*command.split(), name).exception)
    assert (files / name).read_text() == before


def test_a_benchmark_of_another_name_says_its_metric(files: Path) -> None:
    assert adafuse("score", "--scorer", "squad", benchmark="mine").exit_code == 0


def test_the_sentence_goes_to_stderr_with_status_2(files: Path) -> None:
    """Also through the environment variable, where the SentencePiece model is absent."""
    options = ["--predictions", "preds.jsonl", "--references", "refs.jsonl"]
    code = (
        "from sacrebleu.tokenizers import tokenizer_spm as spm\n"
        "def refuse(url, path): raise OSError('no network')\n"
        "spm.download_file = refuse\n"
        "from adafuse.cli.main import main; main()"
    )
    environment = {
        **os.environ,
        "SACREBLEU": str(files),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    done = subprocess.run(
        [sys.executable, "-c", code, "score", "--benchmark", "flores_en_de", *options],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("error: spBLEU needs the SentencePiece model")
    assert str(files / "models/sacrebleu_tokenizer_spm.model") in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_audit_lists_what_only_published_accepts(files: Path) -> None:
    done = adafuse("audit", "--csv", "audit.csv")
    assert done.exit_code == 0, done.exception
    assert "| containment | a | not Paris | Paris |" in done.stdout
    assert "strict 33.33, published 66.67, +33.33 points" in done.stdout
    assert Path("audit.csv").read_text().count("\n") == 2


def test_json_goes_to_standard_output_and_is_what_the_file_holds(files: Path) -> None:
    done = adafuse("score", "--json", "--out", "score.json")
    assert json.loads(done.stdout) == json.loads(Path("score.json").read_text())


def test_rows_are_compared_with_appendix_c(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = ["audit", "--benchmark", "squad", "--references", "refs.jsonl"]
    done = CliRunner().invoke(app, audit)
    assert done.exit_code == 1
    assert "other rows: 3 (2500 in appendix C)" in done.stdout
    assert "these are not the rows of the paper; SHA-256 of this file: " in done.stdout
    own = hashlib.sha256(Path("refs.jsonl").read_bytes()).hexdigest()
    for sha256, sentence in (
        (own, "this is the authors' file, byte for byte"),
        ("0" * 64, "the figures are the paper's, but not every byte is the authors'"),
    ):
        monkeypatch.setattr(
            "adafuse.config.reading.read_values",
            lambda *_, sha256=sha256: {
                "paper": {"rows": 3, "question_chars": 5, "answer_chars": 11.3, "sha256": sha256}
            },
        )
        done = CliRunner().invoke(app, audit)
        assert (done.exit_code, sentence in done.stdout) == (0, True), done.stdout
    told = json.loads(CliRunner().invoke(app, [*audit, "--json"]).stdout)
    assert told["figures"]["answer_chars"] == [11.3, 11.3]
    assert (told["agree"], told["authors_file"]) == (True, False)


def test_rows_of_another_benchmark_have_no_figures(files: Path) -> None:
    done = CliRunner().invoke(app, ["audit", "--benchmark", "squat", "--references", "refs.jsonl"])
    assert "has no benchmark 'squat'" in str(done.exception)
    assert "did you mean 'squad'" in str(done.exception)
    done = CliRunner().invoke(
        app, ["audit", "--benchmark", "nq", "--references", "refs.jsonl", "--scorer", "nq"]
    )
    assert str(done.exception).startswith("--scorer is for predictions")


def test_the_audit_as_json_has_every_case_and_both_scores(files: Path) -> None:
    told = json.loads(adafuse("audit", "--json").stdout)
    assert [each["id"] for each in told["accepted"]] == ["a"]
    assert [score["protocol"] for score in told["scores"]] == ["strict", "published"]
