"""Paths in a configuration and on the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from adafuse.cli.main import app
from adafuse.config.reading import parse_config
from adafuse.errors import UserError
from adafuse.workflow.plan import Plan


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder that is the value of $PLACE, too."""
    folder = tmp_path / "home of ä"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("PLACE", str(folder))
    return folder


@pytest.mark.parametrize("place", ["~", "$PLACE", "${PLACE}"])
def test_every_path_of_a_configuration_may_begin_at_home(
    values: dict[str, Any], tmp_path: Path, home: Path, place: str
) -> None:
    for name in ("left", "qa.jsonl"):
        (tmp_path / name).rename(home / name)
    (home / "ids.txt").write_text("r1\nr2\n")
    (home / "shots.txt").write_text("Question: a\nAnswer: b\n")
    task = {**values["benchmarks"]["qa"], "source": {"file": f"{place}/qa.jsonl"}, "shards": 1}
    task |= {"ids_file": f"{place}/ids.txt", "shots": {"file": f"{place}/shots.txt"}}
    folder = {**task, "source": {"dataset": f"{place}/data", "split": "test"}}
    (home / "data").mkdir()
    (home / "qa.yaml").write_text(yaml.safe_dump(task))
    values["benchmarks"] = {"qa": task, "used": {"use": f"{place}/qa.yaml"}, "folder": folder}
    values["models"]["left"]["path"] = f"{place}/left"
    values |= {"results": f"{place}/out", "container": f"{place}/image.sif"}
    config = parse_config(values)
    assert config.results == f"{home}/out" and config.container == f"{home}/image.sif"
    assert config.models["left"].path == f"{home}/left"
    assert config.benchmarks["used"] == config.benchmarks["qa"]
    assert config.benchmarks["qa"].ids_file == f"{home}/ids.txt"
    assert config.benchmarks["folder"].source.dataset == f"{home}/data"


@pytest.mark.parametrize("path", ["$NOT_SET/out", "~nobody-here/out"])
def test_results_never_go_to_a_folder_named_like_a_variable(
    values: dict[str, Any], path: str
) -> None:
    with pytest.raises(UserError, match=r"results: path '.*': .*; write it out"):
        parse_config(values | {"results": path})


@pytest.mark.parametrize("place", ["~", "$PLACE"])
def test_so_may_those_of_commands(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (home / "r.csv").write_text("id,question,answer\n1,q,a\n")
    (home / "p.csv").write_text("id,text\n1,a\n")
    files = {"predictions": "p.csv", "references": "r.csv", "out": "new/score.json"}
    options = [f"--{name}={place}/{file}" for name, file in files.items()]
    done = CliRunner().invoke(app, ["score", "--benchmark=natural_questions", *options])
    assert done.exit_code == 0, done.exception
    assert json.loads((home / "new/score.json").read_text())["n"] == 1
    assert not Path(place).exists()


@pytest.mark.parametrize(
    ("place", "is_folder"),
    [("", False), ("traces", False), ("scores/strict/qa", False), ("report", False),
     ("logs", False), ("config.json", True), ("traces/qa/left.parquet", True),
     ("benchmarks/qa/rows.jsonl", True)],
)  # fmt: skip
def test_a_file_where_results_need_a_folder_or_the_reverse_is_one_sentence(
    values: dict[str, Any], place: str, is_folder: bool
) -> None:
    path = Path(values["results"], place)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir() if is_folder else path.write_text("x")
    with pytest.raises(UserError) as error:
        Plan.of(values)
    assert f"{str(path)!r} is {'a' if is_folder else 'not a'} folder, but" in str(error.value)


@pytest.mark.parametrize("read", ["model", "dataset"])
def test_results_within_a_folder_that_is_read_are_one_sentence(
    values: dict[str, Any], tmp_path: Path, read: str
) -> None:
    folder = values["models"]["left"]["path"]
    if read == "dataset":
        (folder := tmp_path / "rows").mkdir()
        values["benchmarks"]["qa"]["source"] = {"dataset": str(folder), "split": "test"}
    values["results"] = f"{folder}/deep/results"
    with pytest.raises(UserError, match=r"lies within .* name another one as `results`"):
        Plan.of(values)


def test_results_may_be_a_link_to_a_folder_and_not_to_nothing(
    values: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "results").symlink_to(tmp_path / "real")
    with pytest.raises(UserError, match="is not a folder"):
        Plan.of(values)
    (tmp_path / "real").mkdir()
    Plan.of(values)
    with pytest.raises(UserError, match=r"qa\.jsonl' is not a folder"):
        Plan.of(values | {"results": str(tmp_path / "qa.jsonl/deep/inside")})
