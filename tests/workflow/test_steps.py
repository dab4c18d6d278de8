"""`adafuse step ...` as a person uses it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from adafuse.cli.steps import app
from adafuse.config.schema import schema_text
from adafuse.errors import UserError

from .conftest import Workplace


def test_the_schema_is_printed() -> None:
    assert CliRunner().invoke(app, ["schema"]).stdout == schema_text()


def test_the_report_shows_the_table_and_where_everything_is(
    finished: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished.folder)
    done = CliRunner().invoke(app, ["summary", "config.yaml"])
    assert done.exit_code == 0
    assert "n = 9" in done.stdout
    for path in ("results/tables/main.csv", "results/scores", "results/traces", "results/logs"):
        assert path in done.stdout
        assert Path(path).exists()


def test_a_report_without_results_is_one_sentence(
    finished: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["summary", str(finished.folder / "config.yaml")])
    assert isinstance(done.exception, UserError)
    assert "holds no scores" in str(done.exception)


def test_a_killed_job_says_what_to_change() -> None:
    killed, failed = (CliRunner().invoke(app, ["ended", status]) for status in ("137", "2"))
    assert killed.exit_code == failed.exit_code == 0
    assert "lower batch_size, set it to auto, or ask the cluster for more" in killed.stderr
    assert failed.stderr == ""
