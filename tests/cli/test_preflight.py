"""`adafuse preflight` as lines and as JSON, with its exit status."""

import json

import pytest
from typer.testing import CliRunner

from adafuse.cli.main import app
from adafuse.config import reading
from tests.conftest import toy_path

CONFIG = """\
models: {{llama: {{path: {path}}}}}
benchmarks: {{qa: {{use: {use}}}}}
runs: {{llama: {{method: single, models: [llama]}}}}
decode: {{device: cpu, gpu: 0}}
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    use = request.config.rootpath / "config/benchmarks/toy_qa.yaml"
    (tmp_path / "my.yaml").write_text(CONFIG.format(path=toy_path("llama"), use=use))
    (tmp_path / "offline.yaml").write_text("models: {llama: {path: org/llama}}\n")


def preflight(*words):
    return CliRunner().invoke(app, ["preflight", *words])


def test_a_line_per_check_and_status_0():
    done = preflight("my.yaml")
    assert done.exit_code == 0, done.stdout
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("0 failures, ")
    assert {line.split()[0] for line in lines[:-1]} <= {"ok", "warn"}
    assert "ok    needs      no model or data set of the hub" in lines


def test_what_fails_is_a_line_and_status_1_and_later_configurations_change_earlier_ones():
    done = preflight("my.yaml", "offline.yaml")
    assert done.exit_code == 1
    assert "\nfail  needs      model org/llama (no revision) is missing; run" in done.stdout
    assert "\n1 failure, " in done.stdout


def test_sections_that_a_file_shares_are_changed_one_by_one(tmp_path):
    (tmp_path / "a.yaml").write_text("runs: {x: {options: &o {tau: 0.7}}, y: {options: *o}}")
    (tmp_path / "b.yaml").write_text("runs: {x: {options: {tau: 0.5}}}")
    merged = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "parse_config", merged.update)
        reading.read_configs([tmp_path / "a.yaml", tmp_path / "b.yaml"])
    assert [run["options"]["tau"] for run in merged["runs"].values()] == [0.5, 0.7]


def test_json_holds_every_check():
    told = json.loads(preflight("my.yaml", "--json").stdout)
    assert told["healthy"]
    names = ["node", "gpu", "results", "hub cache", "temporary", "writing", "hub", "token", "needs"]
    assert [check["name"] for check in told["checks"] if check["name"] != "versions"] == names


def test_a_configuration_that_is_none_is_one_sentence():
    assert "'gone.yaml' cannot be read" in str(preflight("gone.yaml").exception)
