"""`adafuse report` over traces of `adafuse generate`, and over what is not one."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from adafuse.cli.main import app
from adafuse.errors import UserError
from adafuse.storage.parquet import read_arrow, read_metadata, write_arrow, write_rows
from adafuse.storage.traces import RESULT_FIELDS, result_columns
from tests.report.test_packed import unpacked
from tests.support.made_up import FUSED

FIELDS = [pa.field("id", pa.string()), *RESULT_FIELDS]


def generated(path: Path, ids: list[str], **settings: Any) -> Path:
    rows = [{"id": name, **result_columns(FUSED[at])} for at, name in enumerate(ids)]
    described = {"models": ["org/a", "folder/b"], "method": "adafuse", **settings}
    write_rows(path, FIELDS, rows, {"settings": described})
    return path


def report(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["report", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


def test_traces_of_the_same_prompts_are_runs_side_by_side(tmp_path: Path) -> None:
    one = generated(tmp_path / "one.parquet", ["x", "y"], tau=0.5)
    two = generated(tmp_path / "two.parquet", ["y", "x"])
    page = report(one, two, "--out", tmp_path / "out")
    assert page == str(tmp_path / "out/explorer.html")
    assert "index.html" not in Path(page).read_text()
    text = (tmp_path / "out/data/manifest.js").read_text()
    manifest = json.loads(text.removeprefix("adafuse.manifest = ").removesuffix(";\n"))
    assert manifest["benchmarks"][0]["runs"] == ["one", "two"]
    assert [run["tau"] for run in manifest["runs"].values()] == [0.5, 0.7]
    assert manifest["models"] == ["a", "b"]
    texts = unpacked(tmp_path / "out/data/prompts/runs/two/texts-0.js")[1]
    assert texts == [FUSED[1].text, FUSED[0].text]


def test_a_folder_beside_the_trace_is_taken_without_out(tmp_path: Path) -> None:
    page = report(generated(tmp_path / "one.parquet", ["x"]))
    assert page == str(tmp_path / "one_report/explorer.html")


def test_traces_of_other_prompts_under_the_same_ids_are_refused(tmp_path: Path) -> None:
    fields = [FIELDS[0], pa.field("prompt", pa.string()), *RESULT_FIELDS]
    for name in ("one", "two"):
        row = {"id": "1", "prompt": f"prompt {name}", **result_columns(FUSED[0])}
        settings = {"models": ["a"], "method": "single"}
        write_rows(tmp_path / f"{name}.parquet", fields, [row], {"settings": settings})
    with pytest.raises(UserError, match="have different prompts of id '1'; make a report of each"):
        report(tmp_path / "one.parquet", tmp_path / "two.parquet", "--out", tmp_path / "out")


def test_models_of_one_name_keep_their_whole_names(tmp_path: Path) -> None:
    path = generated(tmp_path / "t.parquet", ["x"], models=["org1/base", "org2/base", "org/c"])
    report(path)
    text = (tmp_path / "t_report/data/manifest.js").read_text()
    assert '["org1/base", "org2/base", "c"]' in text


def test_folders_of_one_name_are_told_apart_without_the_folders_above_them(tmp_path: Path) -> None:
    models = ["/data/me/old/base", "/data/me/new/base", "org/base"]
    report(generated(tmp_path / "t.parquet", ["x"], models=models))
    text = (tmp_path / "t_report/data/manifest.js").read_text()
    assert '["base-2", "base-1", "org/base"]' in text
    assert "/data" not in text


def test_adapters_over_one_base_are_told_apart(tmp_path: Path) -> None:
    settings = {"models": ["org/base", "org/base"], "adapter": [None, "loras/law"]}
    report(generated(tmp_path / "t.parquet", ["x"], **settings))
    text = (tmp_path / "t_report/data/manifest.js").read_text()
    assert '"models": ["base", "law"]' in text


def test_a_model_that_is_there_twice_is_two_models(tmp_path: Path) -> None:
    report(generated(tmp_path / "t.parquet", ["x"], models=["org/base", "org/base", "org/c"]))
    text = (tmp_path / "t_report/data/manifest.js").read_text()
    assert '"models": ["base (0)", "base (1)", "c"]' in text


def test_errors_and_tracebacks_show_files_by_their_last_parts(tmp_path: Path) -> None:
    failed = replace(
        FUSED[5], error="'/data/me/m/a.bin' is cut", traceback='File "/data/me/x.py", line 3'
    )
    row = {"id": "x", **result_columns(failed)}
    settings = {"models": ["org/a"], "method": "adafuse"}
    write_rows(tmp_path / "t.parquet", FIELDS, [row], {"settings": settings})
    report(tmp_path / "t.parquet")
    rounds = unpacked(tmp_path / "t_report/data/prompts/runs/t/rounds-0.js")
    assert "'a.bin' is cut" in str(rounds)
    assert "/data" not in str(rounds)


def test_a_second_report_drops_the_runs_of_the_first(tmp_path: Path) -> None:
    one, two = (generated(tmp_path / f"{name}.parquet", ["x"]) for name in ("one", "index.js"))
    for paths in ((one, two), (two,)):
        report(*paths, "--out", tmp_path / "out")
    assert [p.name for p in (tmp_path / "out/data/prompts/runs").iterdir()] == ["index.js"]


@pytest.mark.parametrize(
    ("names", "ids", "sentence"),
    [
        (["a/t", "b/t"], [["x"], ["x"]], "two traces are called 't'; rename one"),
        (["a/t", "a/u"], [["x"], ["z"]], r"do not hold the same ids \('x' is in one only\)"),
        (["a/t"], [["x", "x"]], "t.parquet' has id 'x' twice; give a trace with each row once"),
        (["a/t"], [[]], "t.parquet' has no examples; name another file"),
    ],
)
def test_traces_that_do_not_belong_together_are_one_sentence(
    tmp_path: Path, names: list[str], ids: list[list[str]], sentence: str
) -> None:
    paths = [
        generated(tmp_path / f"{name}.parquet", each) for name, each in zip(names, ids, strict=True)
    ]
    with pytest.raises(UserError, match=sentence):
        report(*paths, "--out", tmp_path / "out")


@pytest.mark.parametrize(
    ("column", "values", "sentence"),
    [
        ("seconds", None, r"'.*one.parquet' has no column 'seconds'; give a file of adafuse"),
        ("id", [1], r"column 'id' of '.*one.parquet' has type int64, not text; give a file of"),
        ("rounds", [None], r"one.parquet, row 0 \(counted from 0\): rounds is None; give a file"),
    ],
)
def test_a_trace_that_was_changed_elsewhere_is_one_sentence(
    tmp_path: Path, column: str, values: list[int | None] | None, sentence: str
) -> None:
    path = generated(tmp_path / "one.parquet", ["x"])
    table, about = read_arrow(path).drop_columns(column), read_metadata(path)
    table = table if values is None else table.append_column(column, pa.array(values))
    write_arrow(path, table, about)
    with pytest.raises(UserError, match=sentence):
        report(path, "--out", tmp_path / "out")


def test_a_trace_of_the_workflow_alone_is_refused(tmp_path: Path) -> None:
    rows = [{"id": "x", **result_columns(FUSED[0])}]
    write_rows(tmp_path / "t.parquet", FIELDS, rows, {"shards": []})
    with pytest.raises(
        UserError, match="is not a trace of adafuse generate; for those of the workflow"
    ):
        report(tmp_path / "t.parquet")


def test_a_folder_without_results_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config.json' does not exist; name a results folder"):
        report(tmp_path)
    with pytest.raises(UserError, match="2 arguments of which not all are traces"):
        report(tmp_path, tmp_path / "t.parquet")
