"""What packages of others bring: found where it works, a warning where it does not."""

import importlib
import logging
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from adafuse import plugins
from adafuse.decoding.fusion import FUSION_RULES, fusion_rule
from adafuse.errors import UserError
from adafuse.methods import METHODS, resolve
from adafuse.metrics.registry import SCORERS, scorer_named
from adafuse.plugins import add_installed, code_of
from tests.conftest import toy_path

ROOT = Path(__file__).parents[1]
RULE = "def least(candidate, weights):\n    return max(candidate.nll)\n"


def installed(folder: Path, name: str, code: str, group: str, entry: str) -> None:
    """Put a package of one file onto a folder as pip would install it."""
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[adafuse.{group}]\n{entry}\n")


def run(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    path = f"{folder}:{ROOT}"
    return subprocess.run(
        [sys.executable, "-m", "adafuse", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )


def test_a_package_that_cannot_be_imported_is_a_warning_and_an_error_where_it_is_named(tmp_path):
    installed(tmp_path, "torn", "import nowhere_to_be_found\n", "methods", "minimax = torn:Minimax")
    listed = run(tmp_path, "methods")
    told = "method 'minimax' of torn 1.0 cannot be used (ModuleNotFoundError: No module named"
    assert listed.returncode == 0
    assert "adafuse" in listed.stdout
    assert listed.stderr.count("\n") == 1
    assert told in listed.stderr
    named = run(tmp_path, "generate", "--model", "org/x", "--prompt", "a", "--method", "minimax")
    assert named.returncode == 2
    assert f"error: {told} 'nowhere_to_be_found'); repair or uninstall that pac" in named.stderr


def test_a_rule_of_a_package_fuses_and_the_trace_names_it(tmp_path):
    installed(tmp_path, "ruler", RULE, "fusion_rules", "least = ruler:least")
    models = ["--model", toy_path("mistral"), "--model", toy_path("llama"), "--device", "cpu"]
    files = ["--prompt", "Question: who?\\nAnswer:", "--out", "out.parquet"]
    limits = ["--max-new-tokens", "6", "--fusion", "least"]
    done = run(tmp_path, "generate", *models, *files, *limits)
    assert done.returncode == 0, done.stderr
    from adafuse.parquet import read_metadata, read_rows

    (row,) = read_rows(tmp_path / "out.parquet")
    for taken in row["rounds"]:
        for candidate in taken["candidates"]:
            assert candidate["fused"] == max(candidate["nll"])
    assert read_metadata(tmp_path / "out.parquet")["versions"]["ruler 1.0"].startswith("code ")


@pytest.fixture
def entries(monkeypatch):
    """The entry points that packages declare, by group."""
    found: dict[str, list[EntryPoint]] = {}
    monkeypatch.setattr(plugins, "entry_points", lambda group: found.get(group, []))
    monkeypatch.setattr(plugins, "_BROKEN", {})
    return found


@pytest.mark.parametrize(
    ("kind", "named", "reason"),
    [
        ("method", "os:nothing", "AttributeError: module 'os' has no attribute 'nothing'"),
        ("method", "os:getcwd", "is no decoding method; derive a class from Method"),
        ("scorer", "adafuse.methods.adafuse:AdaFuse", "is no scorer; make it a Scorer"),
        ("fusion rule", "tests.test_plugins:mean_nll", "there are two fusion rules 'mean_nll'"),
    ],
)
def test_what_does_not_fit_is_left_out(entries, caplog, kind, named, reason):
    group = f"adafuse.{kind.replace(' ', '_')}s"
    entries[group] = [EntryPoint("odd", named, group)]
    known = [dict(METHODS), dict(SCORERS), dict(FUSION_RULES)]
    from adafuse.methods.registry import register
    from adafuse.metrics.registry import register_scorer

    adds = {"method": register, "scorer": register_scorer, "fusion rule": fusion_rule}
    with caplog.at_level(logging.WARNING):
        add_installed(kind, adds[kind])
    assert f"{kind} 'odd' of {named.partition(':')[0].partition('.')[0]} cannot be" in caplog.text
    assert reason in caplog.text
    assert known == [METHODS, SCORERS, FUSION_RULES]
    ask = {
        "method": lambda: resolve("odd", {}),
        "scorer": lambda: scorer_named("odd", "--scorer"),
        "fusion rule": lambda: resolve("adafuse", {"fusion": "odd"}),
    }
    with pytest.raises(UserError, match=r"'odd' of .* cannot be used .*; repair or uninstall"):
        ask[kind]()


def mean_nll(candidate, weights):
    """A rule whose name is taken."""
    return 0.0


def test_the_digest_follows_every_file_of_a_package(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "many").mkdir()
    (tmp_path / "many/__init__.py").write_text("from many.rules import least\n")
    (tmp_path / "many/rules.py").write_text(RULE)
    rule = importlib.import_module("many").least

    def digest() -> dict[str, str]:
        plugins._code_digest.cache_clear()
        return code_of(rule)

    before = digest()
    assert list(before) == ["many"]
    assert digest() == before
    (tmp_path / "many/helper.py").write_text("x = 1\n")
    assert digest() != before
    assert code_of(METHODS["adafuse"], FUSION_RULES["mean_nll"], None) == {}
