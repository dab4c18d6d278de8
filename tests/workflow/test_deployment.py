"""How the workflow gets onto other machines: the wheel, conda, containers, the workflow catalog."""

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from .conftest import ROOT

SNAKEMAKE = (sys.executable, "-m", "snakemake", "--cores", "2")
CONDA = """\
#!/usr/bin/env bash
# What Snakemake asks of conda; an environment sees what is installed here, but not AdaFuse.
case "$*" in
  "info --json") echo '{{"conda_prefix": "{base}", "platform": "linux-64"}}' ;;
  --version) echo "conda 25.11.0" ;;
  clean*) ;;
  config*) echo '{{"get": {{"channel_priority": "strict"}}}}' ;;
  "env create "*)
    {python} -m venv --without-pip "${{@: -1}}"
    packages=("${{@: -1}}"/lib/python*/site-packages)
    echo {packages} > "$packages/others.pth" ;;
  *) echo "conda is not asked $*" >&2; exit 1 ;;
esac
"""


def run(*words: object, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    environment.pop("PYTHONPATH", None)
    line = list(map(str, words))
    return subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True)


def ran(*words: object, cwd: Path, **variables: str) -> str:
    done = run(*words, cwd=cwd, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def started(tmp_path: Path) -> Path:
    """The folder of `adafuse init`, with few rows."""
    ran(sys.executable, "-m", "adafuse", "init", "my", cwd=tmp_path)
    path = tmp_path / "my/config/config.yaml"
    config = yaml.safe_load(path.read_text())
    config["benchmarks"]["toy_qa"]["limit"] = 4
    path.write_text(yaml.safe_dump(config))
    return tmp_path / "my"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", folder]
    ran(sys.executable, "-m", "pip", "wheel", *options, ROOT, cwd=folder)
    (built,) = folder.glob("adafuse-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel, and with what it needs from here."""
    folder = tmp_path_factory.mktemp("environment") / "env"
    venv.create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    ran(folder / "bin/python", "-m", "pip", "install", "--no-deps", "-q", wheel, cwd=folder)
    return folder / "bin"


@pytest.mark.soak
def test_the_page_of_a_package_index_leads_nowhere_wrong_and_the_wheel_has_its_licence(
    wheel: Path,
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = archive.namelist()
        (metadata,) = (name for name in files if name.endswith("/METADATA"))
        page = archive.read(metadata).decode()
    links = re.findall(r"\]\(([^)]*)\)", page.partition("\n\n")[2])
    assert links and all(link.startswith("https://") for link in links)
    assert "\nLicense-File: LICENSE\n" in page
    assert "adafuse/py.typed" in files and any(n.endswith("/licenses/LICENSE") for n in files)


@pytest.mark.soak
def test_from_the_wheel_to_a_table_without_a_clone(installed: Path, tmp_path: Path) -> None:
    assert "init" in ran(installed / "adafuse", "--help", cwd=tmp_path)
    ran(installed / "adafuse", "init", "my", cwd=tmp_path)
    folder = tmp_path / "my"
    ran(installed / "python", "-m", "snakemake", "--cores", 2, cwd=folder)
    table = (folder / "results/tables/main.md").read_text()
    assert re.search(r"\| adafuse \| adafuse \| mistral\+llama \| \*\*9\d\.\d\*\*", table)
    assert (folder / "results/report/index.html").is_file()
    assert str(ROOT) not in (folder / "results/config.json").read_text()
    ran(installed / "adafuse", "status", cwd=folder)


@pytest.mark.soak
def test_with_conda_jobs_use_the_environment_s_own_adafuse(wheel: Path, started: Path) -> None:
    base = started.parent / "conda"
    (base / "bin").mkdir(parents=True)
    others = sysconfig.get_path("purelib")
    (base / "bin/conda").write_text(CONDA.format(base=base, python=sys.executable, packages=others))
    (base / "bin/conda").chmod(0o755)
    (base / "bin/activate").write_text('export PATH="$1/bin:$PATH" CONDA_PREFIX="$1"\n')
    path = f"{base / 'bin'}:{os.environ['PATH']}"
    line = [*SNAKEMAKE, "--sdm", "conda", "--forceall"]
    refused = run(*line, cwd=started, PATH=path)
    assert refused.returncode != 0
    assert "is not a clone of AdaFuse; set ADAFUSE to a clone or a wheel of it" in refused.stderr

    ran(*line, cwd=started, PATH=path, ADAFUSE=str(wheel))
    (environment,) = (started / ".snakemake/conda").glob("*_/bin/adafuse")
    environment.write_text("#!/bin/sh\necho run from the environment; exit 1\n")
    done = run(*line, cwd=started, PATH=path, ADAFUSE=str(wheel))
    assert done.returncode != 0 and "run from the environment\n" in done.stdout


def container_steps(name: str) -> tuple[str, set[str], list[str]]:
    """Return the base image, the files that are copied, and the commands of a definition."""
    text = (ROOT / "container" / name).read_text()
    (base,) = re.findall(r"^(?:FROM|From:) (\S+)$", text, re.MULTILINE)
    if name == "Dockerfile":
        copied = " ".join(re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE)).split()
    else:
        copied = re.findall(r"^ +(\S+) /opt/adafuse/\1$", text, re.MULTILINE)
    (extras,) = re.findall(r"EXTRAS=(\w+)$", text, re.MULTILINE)
    named = text.replace("${EXTRAS}", extras).replace("{{ EXTRAS }}", extras)
    return base, set(copied), re.findall(r"pip install.*", named)


def test_both_containers_are_made_in_the_same_way_from_what_a_wheel_needs() -> None:
    base, copied, commands = container_steps("Dockerfile")
    assert container_steps("apptainer.def") == (base, copied, commands)
    assert base.startswith("python:3.") and len(commands) == 1
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    needed = {*hatch["targets"]["wheel"]["force-include"], "adafuse"}
    assert copied == needed | {"pyproject.toml", "constraints.txt", "README.md", "LICENSE"}
    assert all((ROOT / name).exists() for name in copied)


def test_a_container_has_to_be_named(started: Path) -> None:
    done = run(*SNAKEMAKE, "--sdm", "apptainer", "--dry-run", cwd=started)
    assert done.returncode != 0
    assert "error: --sdm apptainer needs an image; name it as `container`" in done.stderr


def test_every_job_loads_the_environment_modules(started: Path) -> None:
    path = started / "config/config.yaml"
    path.write_text(path.read_text() + "envmodules: [python/3.12, cuda/12.8]\n")
    module = {"BASH_FUNC_module%%": '() { echo "$@" >> modules; }'}
    rows = "results/benchmarks/toy_qa/rows.jsonl"
    ran(*SNAKEMAKE, "--sdm", "env-modules", "--", rows, cwd=started, **module)
    assert (started / "modules").read_text() == "purge\nload python/3.12 cuda/12.8\n"


def test_a_job_of_another_version_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ADAFUSE_PLANNED_BY", "0.0.9-1.1.1")
    line = [sys.executable, "-m", "adafuse", "step", "ended", "0"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "but Snakemake planned with 0.0.9-1.1.1; install the same one" in done.stderr


def test_the_catalog_s_rules_hold() -> None:
    """Of the Snakemake workflow catalog, for standardized usage."""
    assert (ROOT / "workflow/Snakefile").is_file() and (ROOT / "README.md").is_file()
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert usage["software-stack-deployment"].keys() <= {"conda", "apptainer", "apptainer+conda"}
    assert {"desc", "flags"} == usage["mandatory-flags"].keys()
    assert usage["report"] is True
    # snakedeploy copies config/, and runs the workflow as a module on config/config.yaml.
    assert (ROOT / "config/config.yaml").is_file() and (ROOT / "config/README.md").is_file()
    rules = "".join(path.read_text() for path in (ROOT / "workflow/rules").glob("*.smk"))
    assert re.findall(r'conda:\s+"(.*)"', rules)
    assert set(re.findall(r'conda:\s+"(.*)"', rules)) == {"../../environment.yml"}
    snakefile = (ROOT / "workflow/Snakefile").read_text()
    assert "report(" in rules and 'report: "report/workflow.rst"' in snakefile
