"""`adafuse export`: results as others read them."""

import contextlib
import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from typer.testing import CliRunner

from adafuse.cli.main import app
from adafuse.errors import UserError
from adafuse.metrics.score import read_score
from adafuse.storage.parquet import read_rows
from adafuse.workflow.stamps import write_stamp

from .conftest import Workplace


@pytest.fixture(scope="module")
def shared(finished: Workplace, tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """Results with a run that chooses, elsewhere than where they were made."""
    place = Workplace(tmp_path_factory.mktemp("shared") / "place", finished.python)
    shutil.copytree(finished.folder, place.folder, symlinks=True)
    runs = {"oracle": {"method": "best_of", "models": ["mistral", "llama"]}}
    runs["mistral"] = {"method": "single", "models": ["mistral"]}
    runs["short"] = {**runs["mistral"], "max_rounds": 1}
    place.configure(lambda config: config["runs"].update(runs))
    place.run()
    return place


def export(place: Workplace, *options: str) -> str:
    with contextlib.chdir(place.folder):
        done = CliRunner().invoke(app, ["export", *options])
    assert done.exit_code == 0, done.output
    return done.stdout


def records(folder: Path) -> dict[tuple[str, str], tuple[Path, dict[str, Any]]]:
    paths = sorted(folder.glob("data/*/*/*/*.json"))
    read = [(path, json.loads(path.read_text())) for path in paths]
    return {(path.parts[-4], path.parts[-2]): (path, record) for path, record in read}


def test_a_record_for_each_score_with_its_interval_and_its_samples(
    shared: Workplace, tmp_path: Path
) -> None:
    theirs = [tmp_path / f"data/qa/local/mistral/{uuid4()}.json" for _ in range(2)]
    theirs[0].parent.mkdir(parents=True)
    for path, text in zip(theirs, ("[]", '{"model_info": {"name": "mistral"}}'), strict=True):
        path.write_text(text)
    assert export(shared, "--out", str(tmp_path), "--organization", "Lab").startswith("10 records")
    for path in theirs:  # what is not ours stays
        path.unlink()
    found = records(tmp_path)
    assert found.keys() == {(b, r) for b in ("qa", "mt") for r in shared.config()["runs"]}
    models = {run: record["model_info"]["id"] for (_, run), (_, record) in found.items()}
    assert models["mistral"] == "local/mistral"
    assert models["short"] == "adafuse/short"  # it is not the model as it is
    for (benchmark, run), (path, record) in found.items():
        score = read_score(shared.folder / f"results/scores/strict/{benchmark}/{run}.json")
        values = {
            r["evaluation_result_id"]: r["score_details"] for r in record["evaluation_results"]
        }
        assert values[f"strict.{score.primary}"]["score"] == score.main.value
        interval = values[f"strict.{score.primary}"]["uncertainty"].get("confidence_interval", {})
        ends = interval.get("lower"), interval.get("upper")
        assert ends == (score.main.low, score.main.high)
        assert bool(interval) == (benchmark == "qa")  # of so few translations there is none
        assert record["source_metadata"]["source_organization_name"] == "Lab"
        assert record["model_info"]["id"] == "/".join(path.parts[-3:-1])

        details = record["detailed_evaluation_results"]
        samples = tmp_path / details["file_path"]
        assert samples == path.with_name(f"{path.stem}_samples.jsonl")
        assert details["checksum"] == hashlib.sha256(samples.read_bytes()).hexdigest()
        rows = [json.loads(line) for line in samples.read_text().splitlines()]
        assert len(rows) == details["total_rows"] == score.n
        trace = shared.folder / f"results/traces/{benchmark}/{run}.parquet"
        texts = {row["id"]: row["text"] for row in read_rows(trace)}
        assert {row["sample_id"]: row["output"]["raw"] for row in rows} == {
            name: [text] for name, text in texts.items()
        }
        assert {row["evaluation_id"] for row in rows} == {record["evaluation_id"]}
        costs = {name in row for row in rows for name in ("token_usage", "performance")}
        assert costs == {run != "oracle"}  # which needs the answers of all its models
        if benchmark == "qa":
            right = sum(row["evaluation"]["is_correct"] for row in rows)
            assert 100 * right / score.n == pytest.approx(score.main.value)


def test_the_same_results_give_the_same_files_and_no_path_of_this_machine(
    shared: Workplace, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        export(shared, "--out", str(tmp_path / name))
    files = {
        name: {
            path.relative_to(tmp_path / name): path.read_text()
            for path in (tmp_path / name).rglob("*.json*")
        }
        for name in ("one", "two")
    }
    assert files["one"] == files["two"]
    assert not any(str(shared.folder) in text for text in files["one"].values())
    uuid = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    assert all(re.fullmatch(rf"{uuid}(_samples)?\.jsonl?", path.name) for path in files["one"])


def test_the_validator_of_the_schema_accepts_the_records(shared: Workplace, tmp_path: Path) -> None:
    """Its package needs Python 3.12 and an older huggingface_hub, so it is a program here."""
    if (validator := shutil.which("every_eval_ever")) is None:
        pytest.skip("the program every_eval_ever is not installed")
    export(shared, "--out", str(tmp_path))
    line = [validator, "validate", "--format", "json", "data/*/*/*/*.json*"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_card_makes_the_traces_a_data_set(
    shared: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    card = shared.folder / "results/traces/README.md"
    assert export(shared, "--format", "dataset-card").strip() == "results/traces/README.md"
    configs = yaml.safe_load(card.read_text().split("---\n")[1])["configs"]
    assert [each["config_name"] for each in configs] == ["qa", "qa_oracle", "mt", "mt_oracle"]
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    for name, split in (("qa", "adafuse"), ("mt_oracle", "oracle")):
        rows = datasets.load_dataset(
            str(card.parent), name, split=split, cache_dir=str(tmp_path / "cache")
        )
        assert len(rows) == 9
    assert str(shared.folder) not in card.read_text()
    monkeypatch.chdir(shared.folder)
    done = CliRunner().invoke(app, ["status", "--json"])
    assert json.loads(done.stdout)["orphans"] == []


def test_an_unknown_format_is_told_the_others(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "adafuse", "export", "--format", "csv"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "'csv' is not one of 'every-eval-ever', 'dataset-card', 'latex'; see" in done.stderr


def test_what_is_not_up_to_date_is_not_exported_and_shown_with_a_warning(
    shared: Workplace, tmp_path: Path
) -> None:
    place = Workplace(tmp_path / "place")
    shutil.copytree(shared.folder, place.folder, symlinks=True)
    rows = place.folder / "results/benchmarks/qa/rows.jsonl"
    text = rows.read_text()
    for changed in (text.replace('"answers": ["', '"answers": ["zzz'), text[:-50]):
        rows.write_text(changed)
        with contextlib.chdir(place.folder):
            done = CliRunner().invoke(app, ["export"])
            shown = CliRunner().invoke(app, ["show", "--wrong"])
        assert isinstance(done.exception, UserError)
        assert "is not up to date; run snakemake, then export" in str(done.exception)
        assert re.match("warning: .*rows.jsonl' is not up to date", shown.stderr)
    with contextlib.chdir(shared.folder):
        assert CliRunner().invoke(app, ["show", "--wrong"]).stderr == ""


def test_a_report_with_tables_of_earlier_scores_has_a_warning(
    shared: Workplace, tmp_path: Path
) -> None:
    place = Workplace(tmp_path / "place")
    shutil.copytree(shared.folder, place.folder, symlinks=True)
    command = ["report", "--out", str(tmp_path / "report")]
    with contextlib.chdir(place.folder):
        assert CliRunner().invoke(app, command).stderr == ""
        write_stamp(Path("results/tables/comparison.csv"), "of other scores")
        shown, status = (CliRunner().invoke(app, each) for each in (command, ["status", "--json"]))
    assert re.match("warning: .*comparison.csv' is not up to date; run snakemake", shown.stderr)
    assert json.loads(status.stdout)["outdated"] == ["results/tables/comparison.csv"]


def test_what_cannot_be_exported_is_one_sentence(shared: Workplace, tmp_path: Path) -> None:
    for words, sentence in (
        ([str(tmp_path)], "does not exist; name a results folder of the workflow"),
        (
            ["--format", "dataset-card", "--out", "x"],
            "is written beside the traces",
        ),
    ):
        with contextlib.chdir(shared.folder):
            done = CliRunner().invoke(app, ["export", *words])
        assert isinstance(done.exception, UserError) and sentence in str(done.exception)


def test_every_table_is_written_for_a_paper(shared: Workplace, tmp_path: Path) -> None:
    assert "preview.tex shows them all" in export(shared, "--latex", "--out", str(tmp_path))
    tables = shared.folder / "results/tables"
    written = {path.stem for path in (tmp_path / "tables").glob("*.tex")}
    assert written == {path.stem for path in tables.glob("*.csv")} - {"main_published"} | {
        "preview"
    }
    main = (tmp_path / "tables/main.tex").read_text()
    assert "\\toprule" in main and "\\label{tab:main}" in main
    assert "p =" not in main
    export(shared, "--latex", "--p-values", "--out", str(tmp_path))
    assert re.search(r"p (=|.textless)", (tmp_path / "tables/main.tex").read_text())
