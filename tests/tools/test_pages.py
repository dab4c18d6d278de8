"""Pages that are made from the code are as the code says."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from typer.main import get_command

from adafuse.cli.errors import EXAMPLES, STATUSES
from adafuse.cli.main import app
from adafuse.config.reading import read_config
from adafuse.methods import METHODS
from adafuse.methods.selections import SELECTIONS
from adafuse.metrics.registry import SCORERS
from adafuse.workflow.steps import listing
from tools.docs import results
from tools.docs.pages import PAGES, TEMPLATES, page, template_of

ROOT = Path(__file__).parents[2]
made = cache(page)


@pytest.mark.parametrize("name", PAGES)
def test_a_committed_page_is_what_the_code_makes(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == made(name), "say `make docs`"


def test_every_template_is_a_page() -> None:
    pages = {*PAGES, results.PAGE.relative_to(ROOT).as_posix()}
    assert {template_of(page) for page in pages} == {path.name for path in TEMPLATES.iterdir()}


def test_a_page_is_the_same_wherever_it_is_made(tmp_path: Path) -> None:
    code = "from tools.docs.pages import page; print(page('docs/reproduce.md'), end='')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HOME": str(tmp_path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == made("docs/reproduce.md"), done.stderr


def test_every_command_and_option_and_exit_status_is_described() -> None:
    text = made("docs/command-line.md")
    commands = get_command(app).commands
    assert {*commands} - {"step", "lm-eval"} <= {*EXAMPLES}
    for name, command in commands.items():
        if name in EXAMPLES:
            assert f"## `adafuse {name}`\n" in text
            options = [each for each in command.params if each.param_type_name == "option"]
            assert all(each.opts[0] in text for each in options)
    assert all(f"| {status} | " in text for status in STATUSES)


def test_every_scorer_is_named_in_the_configuration_s_page() -> None:
    text = (ROOT / "config/README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in SCORERS)


def test_the_page_on_the_workflow_names_every_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs/workflow.md").read_text(encoding="utf-8")
    config = read_config(ROOT / "config/smoke.yaml")
    for output in listing(config).values():
        path = output.relative_to(config.results)
        assert f"`{path}`" in text or f"`{path}/`" in text, path


def test_the_table_of_methods_and_that_of_options_name_every_method() -> None:
    text = (ROOT / "docs/methods.md").read_text(encoding="utf-8")
    how, options = text.split("## Options")
    own = {name for name, each in METHODS.items() if each.__module__.startswith("adafuse.")}
    assert not {name for name in own if f"`{name}`" not in how}
    for name in own | SELECTIONS.keys():
        owner = METHODS.get(name) or SELECTIONS[name]
        cells = [row.split(" | ")[:2] for row in options.splitlines()]
        named = [option[0] for methods, *option in cells if f"`{name}`" in methods]
        assert sorted(named) == sorted(f"`{each}`" for each in owner.Options.model_fields)
