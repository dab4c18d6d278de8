"""`adafuse init`: a folder that works without a clone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from adafuse.cli.main import app
from adafuse.cli.steps import check_config
from adafuse.config.reading import read_config
from adafuse.errors import UserError
from adafuse.storage.files import PACKAGE, located, shipped
from adafuse.workflow.layout import config_variable, file_sha256
from adafuse.workflow.plan import Plan


def init(folder: Path):
    return CliRunner().invoke(app, ["init", str(folder)])


def planned(folder: Path):
    line = [sys.executable, "-m", "snakemake", "--dry-run", "--quiet"]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True)


def test_the_folder_holds_a_configuration_that_can_be_planned(tmp_path, monkeypatch):
    done = init(tmp_path / "my")
    assert done.exit_code == 0 and "snakemake --cores 2" in done.stdout
    monkeypatch.chdir(tmp_path / "my")
    config = read_config(Path("config/config.yaml"))
    assert Plan(config).requested_cells() == [("toy_qa", run) for run in config.runs]
    assert all(Path(model.path, "config.json").is_file() for model in config.models.values())


@pytest.mark.soak
def test_a_project_of_plug_ins_can_be_planned_and_its_tests_pass(tmp_path):
    folder = tmp_path / "my"
    done = CliRunner().invoke(app, ["init", str(folder), "--plugin"])
    assert done.exit_code == 0 and "python -m pytest tests" in done.stdout
    line = [sys.executable, "-m", "pytest", "-q", "tests"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    tests = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True)
    assert tests.returncode == 0 and "4 passed" in tests.stdout, tests.stdout + tests.stderr
    plan = planned(folder)
    assert plan.returncode == 0, plan.stderr
    assert "decode                 5\n" in plan.stdout + plan.stderr


def test_snakemake_takes_the_workflow_as_a_module_and_a_quiet_dry_run_prints_the_plan(tmp_path):
    folder = tmp_path / "my"
    init(folder)
    done = planned(folder)
    assert done.returncode == 0, done.stderr
    assert "decode                 3\n" in done.stdout + done.stderr
    assert {path.name for path in folder.iterdir()} == {
        ".gitignore", ".snakemake", "config", "slurm", "workflow"
    }  # fmt: skip


def test_a_command_that_fails_in_a_pipe_fails_its_rule(tmp_path):
    folder = tmp_path / "my"
    init(folder)
    with (folder / "workflow/Snakefile").open("a") as snakefile:
        snakefile.write('\n\nrule mine:\n    output: "x"\n    shell: "false | cat > {output}"\n')
    line = [sys.executable, "-m", "snakemake", "mine", "--cores", "1"]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1 and "Error in rule mine" in done.stderr
    assert not (folder / "x").exists()


def test_an_onstart_of_one_s_own_does_not_replace_the_workflow_s(tmp_path):
    folder = tmp_path / "my"
    init(folder)
    with (folder / "workflow/Snakefile").open("a") as snakefile:
        snakefile.write('\n\nonstart:\n    print("my own")\n')
    rows = "results/benchmarks/toy_qa/rows.jsonl"
    line = [sys.executable, "-m", "snakemake", "--cores", "1", "--", rows]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and "my own\n" in done.stdout
    assert (folder / rows).is_file() and (folder / "results/config.json").is_file()


def test_a_step_refuses_another_configuration_than_the_planned_one(tmp_path, monkeypatch):
    path = tmp_path / "config.json"
    path.write_text("{}")
    monkeypatch.setenv(config_variable(path), "0" * 64)
    with pytest.raises(UserError, match="is not the configuration that Snakemake planned with"):
        check_config(path)
    monkeypatch.setenv(config_variable(path), file_sha256(path))
    check_config(path)


def test_the_configurations_that_need_no_other_files_are_all_there(tmp_path, monkeypatch):
    init(tmp_path / "my")
    monkeypatch.chdir(tmp_path / "my")
    for name in ("config", "toy", "small", "paper"):
        read_config(Path(f"config/{name}.yaml"))
    assert not Path("config/smoke.yaml").exists()
    assert Path("slurm/config.yaml").is_file()


def test_another_folder_s_files_are_not_touched(tmp_path):
    (tmp_path / "mine").write_text("x")
    for path in (tmp_path, tmp_path / "mine", tmp_path / "mine/below"):
        done = init(path)
        assert isinstance(done.exception, UserError), path
        assert repr(str(path)) in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("path", ["adafuse/toy/nothing", "adafuse/toyota", "org/name", "/x"])
def test_only_what_is_below_the_toy_folder_is_looked_for_in_the_package(
    path, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert located("adafuse/toy/models/llama") == str(PACKAGE / "toy/models/llama")
    Path("adafuse/toy/models/llama").mkdir(parents=True)
    assert located("adafuse/toy/models/llama") == "adafuse/toy/models/llama"
    assert located(path) == path


def test_what_the_wheel_ships_is_there_in_a_clone_too():
    for name in ("workflow", "config", "environment.yml", "environment.post-deploy.sh"):
        assert shipped(name).exists()
