"""What a start does with files that its configuration and targets no longer make."""

from pathlib import Path
from typing import Any

import pytest

from adafuse.errors import UserError
from adafuse.storage.files import write_text
from adafuse.workflow.plan import Plan
from adafuse.workflow.stamps import write_stamp
from adafuse.workflow.steps import Job

FIGURES = {
    name: {"title": name, "kind": "scores", "benchmarks": ["qa"], "runs": [name]}
    for name in ("left", "both")
}
SHOWN = [
    *(f"experiments/{name}.{end}" for name in FIGURES for end in ("csv", "svg", "png")),
    *(f"report/{name}.html" for name in ("index", "explorer", "failures")),
    "report/data/qa/0.js",
]


def start(values: dict[str, Any], *targets: str, tau: float = 0.7, wanted: Any = ()) -> None:
    plan = shown(values, *targets, tau=tau)
    plan.start(wanted)
    plan._held.close()  # as the end of its process does


def shown(values: dict[str, Any], *targets: str, tau: float = 0.7) -> Plan:
    values["runs"]["both"]["options"]["tau"] = tau
    return Plan.of(values | {"experiments": FIGURES, "targets": targets})


def made(values: dict[str, Any], *targets: str) -> Path:
    """A results folder with all that can be made; the targets were `targets` when it was."""
    plan = shown(values, *targets)
    plan.store_config()
    keys = {name: plan.key(Job.of("experiment", name)) for name in FIGURES}
    for name in SHOWN:
        path = Path(plan.config.results, name)
        write_text(path, name)
        write_stamp(path, keys.get(path.stem) or plan.key(Job.of("report")))
    return Path(plan.config.results)


def there(folder: Path) -> list[str]:
    return [name for name in SHOWN if (folder / name).exists()]


def test_figures_and_pages_that_targets_no_longer_name_are_moved(
    values: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    folder = made(values, "tables", "experiments", "report")
    start(values, "tables", "report")
    assert there(folder) == SHOWN[-4:]
    start(values, "tables")
    assert there(folder) == [] and there(folder / "orphans") == SHOWN
    assert f"{folder}/report is not made by this configuration: moved to" in caplog.text
    assert f"moved to {folder}/orphans/experiments/left.csv" in caplog.text


def test_figures_and_pages_that_targets_never_named_are_moved_when_they_are_stale(
    values: dict[str, Any],
) -> None:
    folder = made(values, "tables")
    start(values, "tables")
    assert there(folder) == SHOWN
    start(values, "tables", tau=0.5, wanted={folder / "experiments/both.csv"})
    assert there(folder) == [*SHOWN[:3], "experiments/both.csv"]


def test_case_studies_stay_until_they_are_stale(values: dict[str, Any]) -> None:
    page = made(values, "tables") / "tables/case_study.md"
    write_text(page, "x")
    write_stamp(page, shown(values, "tables").key(Job.of("case_study")))
    start(values, "tables")
    assert page.exists()
    start(values, "tables", tau=0.5, wanted={page})
    assert page.exists(), "it is made again"
    start(values, "tables", tau=0.5)
    assert not page.exists() and (page.parents[1] / "orphans/tables/case_study.md").exists()


def test_figures_and_pages_that_are_made_now_stay(values: dict[str, Any]) -> None:
    folder = made(values, "tables", "experiments", "report")
    start(values, "tables", tau=0.5, wanted={folder / name for name in SHOWN})
    assert there(folder) == SHOWN


def test_a_folder_that_cannot_be_written_is_refused_where_something_is_to_be_written(
    values: dict[str, Any],
) -> None:
    plan = Plan.of(values | {"results": "/dev/null/x"})
    with pytest.raises(UserError, match="results folder '/dev/null/x' cannot be written because"):
        plan.start()
