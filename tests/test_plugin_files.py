"""Plug-ins that are single Python files: loaded by their paths, and refused in one sentence."""

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from adafuse import plugins
from adafuse.cli.errors import run
from adafuse.config.reading import read_config, to_json
from adafuse.decoding.fusion import FUSION_RULES
from adafuse.errors import UserError
from adafuse.methods import METHODS
from adafuse.metrics.registry import SCORERS
from adafuse.plugins import code_of, load_file
from adafuse.workflow.plan import Plan
from adafuse.workflow.steps import Job
from tests.conftest import toy_path

ROOT = Path(__file__).parents[1]
TEMPLATES = ROOT / "config" / "plugin"
RULE = """from adafuse.decoding.fusion import fusion_rule


@fusion_rule
def {name}(candidate, weights):
    return {value}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder, in which we are, whose plug-ins are forgotten afterwards."""
    registries = (FUSION_RULES, SCORERS, METHODS)
    before, path = [{**registry} for registry in registries], list(sys.path)
    monkeypatch.setattr(plugins, "_BROUGHT", {**plugins._BROUGHT})
    monkeypatch.chdir(tmp_path)
    plugins._code_digest.cache_clear()
    yield tmp_path
    for registry, kept in zip(registries, before, strict=True):
        registry.clear()
        registry.update(kept)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    sys.path[:] = path
    plugins._code_digest.cache_clear()


def write(path: Path, name: str = "plain", value: str = "0.0", before: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(before + RULE.format(name=name, value=value))
    return path


def test_a_file_is_run_once_and_sees_the_modules_beside_it(folder):
    write(folder / "own/ruler_a.py", value="helper_of_a.VALUE", before="import helper_of_a\n")
    (folder / "own/helper_of_a.py").write_text("VALUE = 3.0\n")
    for path in ("own/ruler_a.py", str(folder / "own/ruler_a.py")):
        load_file(path)
    assert FUSION_RULES["plain"](None, ()) == 3.0
    assert code_of(FUSION_RULES["plain"]).keys() == {"ruler_a"}


def test_a_file_is_run_as_it_is_and_not_as_its_bytecode_was(folder):
    file = write(folder / "ruler_b.py", value="1.0")
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(file)], check=True)
    times = file.stat()
    write(file, value="2.0")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    load_file(str(file))
    assert FUSION_RULES["plain"](None, ()) == 2.0


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("nowhere.py", None, "'nowhere.py' does not exist; check its path; did you mean 'nowher"),
        (".", None, "'.' is a folder; name the Python files in it"),
        ("rules.txt", "", "'rules.txt' is not a Python file; name a file that ends with .py"),
        ("my-rule.py", "", "'my-rule.py' cannot be imported under that name; rename it to my_rule"),
        ("json.py", "", r"'json.py' has the name of another module \(.*json.*\); rename it"),
        ("bad.py", "def (:\n", r"'bad.py' cannot be loaded: SyntaxError: .*\(bad.py, line 1\)"),
        ("bad.py", "x = 1\n1 / 0\n", r"cannot be loaded \(line 2\): ZeroDivisionError: division"),
        ("bad.py", "import sys\nsys.exit(0)\n", r"cannot be loaded \(line 2\): SystemExit: 0"),
        ("bad.py", "import no_such\n", r"\(line 1\): ModuleNotFoundError: No module named 'no_su"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(folder, caplog, name, text, said):
    (folder / "nowhere_else.py").write_text("")
    if text is not None:
        (folder / name).write_text(text)
    with caplog.at_level(logging.INFO), pytest.raises(UserError, match=f"^plug-in .*{said}"):
        load_file(name)
    assert ("Traceback" in caplog.text) == (name == "bad.py")
    assert Path(name).stem not in sys.modules or name == "json.py"


@pytest.mark.parametrize("status", ["0", ""])
def test_a_plug_in_that_exits_ends_a_command_with_an_error(folder, capsys, monkeypatch, status):
    leave = f"import sys\n\ndef leave():\n    sys.exit({status})\n\n"
    load_file(str(write(folder / "ruler_x.py", before=leave)))
    monkeypatch.setattr(sys, "argv", ["adafuse"])
    app = typer.Typer()
    app.command()(lambda: sys.modules["ruler_x"].leave())
    assert run(app) == 2
    kind = "SystemExit: 0" if status else "SystemExit"
    sentence = f"error: a plug-in ended the command: {kind} (ruler_x.py, line 4)"
    assert capsys.readouterr().err == sentence + "\n"


def test_two_of_one_name_are_refused_with_both_files(folder):
    write(folder / "ruler_c.py")
    write(folder / "ruler_d.py")
    write(folder / "other/ruler_c.py", name="another")
    load_file("ruler_c.py")
    twice = (
        r"'ruler_d.py' cannot be loaded \(line 4\): there are two fusion rules 'plain' \(of ruler_c"
    )
    with pytest.raises(UserError, match=f"{twice} and ruler_d\\); rename one of them"):
        load_file("ruler_d.py")
    with pytest.raises(UserError, match=r"has the name of another module \(.*/ruler_c.py\)"):
        load_file("other/ruler_c.py")


@pytest.fixture
def project(folder):
    """A project as `adafuse init --plugin` makes it, with two rows."""
    shutil.copytree(TEMPLATES, folder / "config")
    rows = folder / "config/benchmarks/mybenchmark.jsonl"
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:2]))
    return folder


def planned(project: Path) -> tuple[Plan, dict[str, str]]:
    plan = Plan(read_config(project / "config/config.yaml"))
    return plan, {job.step + str(job.values): plan.key(job) for job in plan.all_jobs()}


def changed(project: Path, name: str) -> set[str]:
    """Return the steps and runs whose keys change with a file."""
    _, before = planned(project)
    with (project / "config" / name).open("a") as file:
        file.write("# changed\n")
    plugins._code_digest.cache_clear()
    _, after = planned(project)
    steps = ("decode", "merge", "score")
    return {key for key in before if before[key] != after[key] and key.startswith(steps)}


def test_plug_ins_beside_a_configuration_are_loaded_and_stored_with_their_path(project):
    config = read_config(project / "config/config.yaml")
    assert config.plugins[0] == str(project / "config/mymethod.py")
    stored = project / "results/config.json"
    stored.parent.mkdir()
    stored.write_text(to_json(config))
    assert read_config(stored).plugins == config.plugins
    assert "mymethod" in METHODS
    write(project / "myrule.py")
    with pytest.raises(UserError, match=r"plugins: 'myrule.py' is .* as well as .*; rename one of"):
        read_config(project / "config/config.yaml")


def test_a_changed_file_makes_again_what_uses_it_and_nothing_else(project):
    def cells(run: str) -> set[str]:
        cell = f"'mybenchmark', '{run}'"
        return {f"decode({cell}, '0')", f"merge({cell})", f"score('strict', {cell})"}

    assert changed(project, "mymethod.py") == cells("mymethod")
    assert changed(project, "myrule.py") == cells("myrule")
    runs = ("mistral", "llama", "adafuse", "myrule", "mymethod")
    scores = {f"score('strict', 'mybenchmark', '{run}')" for run in runs}
    assert changed(project, "myscorer.py") == scores


@pytest.mark.parametrize(
    ("file", "step", "run", "who"),
    [
        ("mymethod.py", "decode", "mymethod", "run 'mymethod'"),
        ("myscorer.py", "score", "adafuse", "scorer 'myscorer'"),
        ("myscorer.py", "decode", "mymethod", None),
        ("mymethod.py", "decode", "adafuse", None),
        ("mymethod.py", "score", "mymethod", None),
    ],
)
def test_a_step_refuses_code_that_was_changed_since_it_was_planned(
    project, monkeypatch, file, step, run, who
):
    plan, _ = planned(project)
    for name, value in plan.exported.items():
        monkeypatch.setenv(name, value)
    with (project / "config" / file).open("a") as code:
        code.write("# changed\n")
    plugins._code_digest.cache_clear()
    values = {"decode": ("mybenchmark", run, 0), "score": ("strict", "mybenchmark", run)}
    job, now = Job.of(step, *values[step]), planned(project)[0]
    if who is None:
        now.check_code(job)
    else:
        with pytest.raises(UserError, match=f"^the plug-in of {who} was changed after Snakemake"):
            now.check_code(job)


def test_a_rule_that_exits_fails_its_row(folder, pair):
    load_file(str(write(folder / "ruler_y.py", value="sys.exit(0)", before="import sys\n")))
    (result,) = pair.generate(["The dog"], max_new_tokens=2, max_words=1, fusion="plain")
    assert result.stop_reason == "error"
    assert result.error == "method 'adafuse': SystemExit: 0 (ruler_y.py, line 7)"


def test_an_error_in_a_plug_in_is_shown_with_its_place_and_its_traceback(tmp_path):
    write(tmp_path / "ruler_e.py", value="1 / 0")
    models = ["--model", toy_path("mistral"), "--model", toy_path("llama"), "--device", "cpu"]
    command = ["generate", *models, "--plugin", "ruler_e.py", "--fusion", "plain"]
    prompts = ["--prompt", "Question: who?", "--prompt", "The", "--max-new-tokens", "2"]

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        line = [sys.executable, "-m", "adafuse", *words]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True)

    done = run("-v", *command, *prompts, "--option", "max_words=1", "--out", "out.parquet")
    assert done.returncode == 1, done.stderr
    said = "fusion rule 'plain': ZeroDivisionError: division by zero (ruler_e.py, line 6)"
    assert f"prompt 1 failed: {said}" in done.stderr
    assert f"prompt 2 failed: {said}" in done.stderr
    assert done.stderr.count("in plain\n") == 1  # a bug fails in all prompts alike
    shown = run("show", "out.parquet").stdout
    assert f"error: {said}" in " ".join(shown.split())
    assert 'ruler_e.py", line 6, in plain' in shown
