"""What packages of others bring: found where it works, a warning where it does not."""

import importlib
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import Distribution, EntryPoint
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
    from adafuse.storage.parquet import read_metadata, read_rows

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
        ("method", "os:getcwd", "is not a decoding method; derive a class from Method"),
        ("scorer", "adafuse.methods.adafuse:AdaFuse", "is not a scorer; make it a Scorer"),
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


@pytest.fixture
def plugin(tmp_path, monkeypatch, entries):
    """Return a rule's digest, whose module lies in a folder, with a record of its files or none."""
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    for name in ("_BROUGHT", "_RELEASES", "_DISTRIBUTIONS"):
        monkeypatch.setattr(plugins, name, {})

    def digest(module: str, record: tuple[str, ...] | None = None) -> dict[str, str]:
        if not entries:
            info = tmp_path / "folder/ruler-1.0.dist-info"
            info.mkdir()
            (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ruler\nVersion: 1.0\n")
            if record is not None:
                lines = [f"{name},,\n" for name in (*record, "ruler-1.0.dist-info/RECORD")]
                (info / "RECORD").write_text("".join(lines))
            group = "adafuse.fusion_rules"
            entry = EntryPoint("least", f"{module}:least", group)
            entries[group] = [entry._for(Distribution.at(info))]
            add_installed("fusion rule", lambda rule: None)
        plugins._code_digest.cache_clear()
        return code_of(importlib.import_module(module).least)

    yield folder, digest
    for name in [name for name in sys.modules if name.partition(".")[0] in MODULES]:
        del sys.modules[name]


MODULES = ("many", "single", "shared", "beside", "below")


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(RULE)


def changing(folder: Path, names: Iterable[str], digest: Callable[[], object]) -> list[str]:
    """Return those of files whose change changes a digest."""
    found = []
    for name in names:
        before = digest()
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("a") as file:
            file.write("# changed\n")
        if digest() != before:
            found.append(name)
    return found


def test_of_an_installed_distribution_all_data_counts_and_the_code_that_is_imported(plugin):
    folder, digest = plugin
    write(folder, "beside.py", "unused.py", "other.py", "table.json", "share/data.txt")
    (folder / "single.py").write_text(f"import beside, other\n{RULE}")
    record = ("single.py", "beside.py", "table.json", "share/data.txt")
    more = ("__pycache__/single.cpython-311.pyc", "../bin/ruler", "unused.py")
    assert digest("single", (*record, *more)).keys() == {"ruler 1.0"}
    files = (*record, *more, "other.py", "ruler-1.0.dist-info/INSTALLER")
    assert changing(folder, files, lambda: digest("single")) == list(record)


@pytest.mark.parametrize("how", ["importlib.import_module(NAME)", "__import__(NAME)"])
def test_all_code_counts_where_some_imports_what_a_variable_names(plugin, how):
    folder, digest = plugin
    write(folder, "many/rules.py", "many/unused.py", "many/deep/unused.py")
    code = f"import importlib\ndef lazy(NAME):\n    {how}\n{RULE}"
    (folder / "many/__init__.py").write_text(code)
    files = ["many/__init__.py", "many/unused.py", "many/deep/unused.py"]
    assert changing(folder, files, lambda: digest("many")) == files


def test_modules_of_one_package_count_apart(plugin):
    folder, digest = plugin
    write(folder, "many/__init__.py", "many/rules.py", "many/others.py")
    digest("many.rules")
    both = importlib.import_module("many.rules"), importlib.import_module("many.others")

    def of(*modules):
        plugins._code_digest.cache_clear()
        return code_of(*(module.least for module in modules))

    files = ["many/__init__.py", "many/rules.py", "many/others.py"]
    assert changing(folder, files, lambda: of(both[0])) == files[:2]
    assert changing(folder, files, lambda: of(both[1])) == [files[0], files[2]]
    assert changing(folder, files, lambda: of(*both)) == files
    assert of(*both).keys() == {"ruler 1.0"}


def test_an_editable_package_counts_with_what_it_imports_beside_itself(plugin):
    folder, digest = plugin
    write(folder, "many/rules.py", "many/data/table.csv", "beside.py", "below/deep.py", "setup.py")
    (folder / "many/__init__.py").write_text("import beside\nfrom many.rules import least\n")
    (folder / "beside.py").write_text("def lazy():\n    from below.deep import x\n")
    digest("many", ("__editable__.ruler-1.0.pth", "__editable___ruler_finder.py"))
    counting = ["many/rules.py", "many/data/table.csv", "beside.py", "below/deep.py"]
    others = ["many/new.py", "setup.py", "many/.cache", "__editable__.ruler-1.0.pth"]
    others.append("many/__pycache__/rules.pyc")
    assert changing(folder, counting + others, lambda: digest("many")) == counting


def test_a_single_module_counts_with_what_it_imports_and_the_files_that_it_names(plugin):
    folder, digest = plugin
    write(folder, "beside.py", "table.json", "config.yaml", "results/a.csv", "named.txt")
    code = (
        "import numpy, beside\nTABLE = open(__file__.replace('single.py', 'table.json')).read()\n"
    )
    (folder / "single.py").write_text(
        f"{code}NAMES = ['results', 'named.txt', 'x' * 9, '\\0']\n{RULE}"
    )
    assert digest("single").keys() == {"ruler 1.0"}
    files = ["single.py", "beside.py", "table.json", "named.txt", "config.yaml", "results/a.csv"]
    assert changing(folder, files, lambda: digest("single")) == files[:4]


def test_a_namespace_is_shared_with_what_does_not_count(plugin):
    folder, digest = plugin
    write(folder, "shared/mine/__init__.py", "shared/mine/rules.py", "shared/others/__init__.py")
    files = ["shared/mine/rules.py", "shared/others/__init__.py"]
    assert changing(folder, files, lambda: digest("shared.mine")) == []
    (folder / "shared/mine/__init__.py").write_text(f"from .rules import least\n{RULE}")
    assert changing(folder, files, lambda: digest("shared.mine")) == files[:1]


def test_a_module_in_a_namespace_counts_with_its_relative_imports(plugin):
    folder, digest = plugin
    write(folder, "shared/rules.py", "shared/helper.py", "shared/others.py", "shared/more.py")
    (folder / "shared/rules.py").write_text(
        f"from . import helper\nfrom .more import least\n{RULE}"
    )
    files = ["shared/rules.py", "shared/helper.py", "shared/more.py", "shared/others.py"]
    assert changing(folder, files, lambda: digest("shared.rules")) == files[:3]


def test_a_rule_of_a_script_counts_with_its_file(plugin):
    folder, _ = plugin
    write(folder, "single.py", "beside.py")
    rule = importlib.import_module("single").least

    def digest() -> dict[str, str]:
        plugins._code_digest.cache_clear()
        return code_of(rule)

    assert changing(folder, ["single.py", "beside.py"], digest) == ["single.py"]
    assert list(digest()) == ["single"]
    assert code_of(METHODS["adafuse"], FUSION_RULES["mean_nll"], None) == {}


def test_the_same_code_elsewhere_is_the_same(plugin, tmp_path, monkeypatch):
    folder, digest = plugin
    write(folder, "many/__init__.py", "many/rules.py", "many/table.csv")
    before = digest("many")
    shutil.copytree(folder, tmp_path / "elsewhere")
    monkeypatch.setattr(sys.modules["many"], "__file__", f"{tmp_path}/elsewhere/many/__init__.py")
    assert digest("many") == before
