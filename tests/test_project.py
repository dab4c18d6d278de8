"""The files around the package say the same as the package."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest
import yaml

from adafuse.version import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
CONSTRAINTS = dict(
    line.split("==")
    for line in (ROOT / "constraints.txt").read_text().split("\n")
    if line and not line.startswith("#")
)


def names(requirements):
    """Normalised package names of requirement lines."""
    found = (re.match(r"[A-Za-z0-9_.-]+", line).group() for line in requirements)
    return {name.lower().replace("_", "-") for name in found}


def test_the_conda_environment_installs_what_pyproject_asks_for():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python, _, pip = environment["dependencies"]
    assert python == f"python{PROJECT['requires-python']}"
    asked = [*PROJECT["dependencies"], *EXTRAS["workflow"], *EXTRAS["report"]]
    asked.remove("adafuse[report]")
    assert pip["pip"] == list(dict.fromkeys(asked))


def test_every_dependency_is_pinned_in_the_constraints():
    extras = [line for name, lines in EXTRAS.items() if name != "bertscore" for line in lines]
    asked = names(PROJECT["dependencies"] + extras) - {"adafuse"}
    assert asked <= {name.lower().replace("_", "-") for name in CONSTRAINTS}


def imported(path: Path) -> set[str]:
    """Return the top-level packages that a module imports, anywhere in it."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    whole = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    parts = {n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.module and not n.level}
    return {name.partition(".")[0] for name in whole | parts}


COMES_WITH = {
    "huggingface_hub": "transformers",
    "markupsafe": "jinja2",
    "pydantic_core": "pydantic",
    "starlette": "fastapi",
    "tokenizers": "transformers",
}
"""Packages that a declared one always installs, in the version that it needs."""


def test_every_package_that_is_imported_is_declared():
    providers = packages_distributions()
    extras = [line for lines in EXTRAS.values() for line in lines]
    declared = names(PROJECT["dependencies"] + extras)
    # Who calls to_pandas has pandas; the logits processor runs in the environment of vLLM.
    not_needed = {"adafuse", "pandas", "vllm"}
    for path in (ROOT / "adafuse").rglob("*.py"):
        for package in imported(path) - sys.stdlib_module_names - not_needed:
            distributions = [COMES_WITH.get(package), *providers.get(package, [package])]
            assert names(filter(None, distributions)) & declared, f"{path}: {package}"


def test_the_oldest_snakemake_is_the_same_everywhere():
    texts = [ROOT / name for name in ("pyproject.toml", "environment.yml", "workflow/Snakefile")]
    found = {
        version
        for path in [*texts, ROOT / "README.md", *ROOT.glob("docs/*.md")]
        for version in re.findall(
            r"(?i)(?:snakemake(?:>=| )|min_version\(\")(\d+\.\d+)", path.read_text()
        )
    }
    assert len(found) == 1
    assert all(next(iter(found)) in path.read_text() for path in texts)


def test_the_authors_and_keywords_are_those_of_the_citation():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert PROJECT["authors"] == citation["authors"]
    assert PROJECT["keywords"] == citation["keywords"]


def test_what_is_installed_is_what_is_pinned():
    for name in ("torch", "transformers", "snakemake", "pyarrow", "pydantic", "sacrebleu"):
        assert version(name).split("+")[0] == CONSTRAINTS[name]


def test_every_python_that_is_claimed_is_tested():
    named = "Programming Language :: Python :: 3."
    claimed = [each.split()[-1] for each in PROJECT["classifiers"] if each.startswith(named)]
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]
    assert jobs["pythons"]["strategy"]["matrix"]["python"] == claimed
    assert PROJECT["requires-python"] == f">={claimed[0]}"


def test_the_changelog_tells_of_this_version():
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_importing_the_package_and_its_methods_loads_no_torch():
    code = "import sys, adafuse, adafuse.methods; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_no_file_names_a_package_index_or_a_path_of_somebodys_machine():
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    suspicious = re.compile(r"index-url|pypi\.org|/home/|/work/|/root/")
    for name in filter(None, listed.stdout.split("\n")):
        path = ROOT / name
        if path.suffix in {".py", ".md", ".yml", ".yaml", ".toml", ".smk", ".txt"} and (
            path != Path(__file__)
        ):
            assert not suspicious.search(path.read_text(encoding="utf-8")), name


def test_the_snakefile_is_a_table_of_contents():
    assert (ROOT / "workflow/Snakefile").read_text().count("\n") <= 40


def test_the_tests_that_the_table_of_faults_names_are_there():
    named = re.findall(r"`([a-z_/]+\.py)(?:::(\w+))?`", (ROOT / "docs/reliability.md").read_text())
    assert len(named) > 25
    for file, test in named:
        path = ROOT / "tests" / file
        if path.is_file() or path.name != "test_slurm.py":  # which not every checkout has
            assert not test or f"def {test}(" in path.read_text(), f"{file}::{test}"


def test_pytest_xdist_keeps_groups_together(request: pytest.FixtureRequest) -> None:
    """Or each worker makes the expensive fixtures of all groups again."""
    if "PYTEST_XDIST_WORKER" in os.environ and request.config.getoption("loadgroup"):
        assert request.node.nodeid.endswith("@tests/test_project.py")
