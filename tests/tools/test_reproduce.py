"""What reproducing the paper would take, in figures."""

from pathlib import Path

import pytest
import yaml

from tests.workflow.test_paper import DECODES, TOGETHER
from tools.docs import reproduce

ROOT = Path(__file__).parents[2]


def cells(table: str) -> dict[str, list[str]]:
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return {row[0].strip("`"): [cell.strip() for cell in row[1:]] for row in rows}


def test_every_target_has_as_many_decode_jobs_as_snakemake_plans() -> None:
    found = {name: int(row[0].replace(",", "")) for name, row in estimates().items()}
    assert found == DECODES


def test_all_targets_together_are_decoded_once() -> None:
    jobs = [int(row[1].replace(",", "")) for row in totals().values()]
    assert jobs[-1] == TOGETHER == sum(jobs[:-1])


def test_what_is_asked_for_is_more_than_what_is_needed_without_margin() -> None:
    for row in [*estimates().values(), *(row[1:5] for row in totals().values())]:
        asked, bare = (float(value.replace(",", "")) for value in row[2:4])
        assert asked > 10 * bare


def test_the_days_and_the_hours_of_starts_are_those_of_the_totals() -> None:
    *_, asked, bare, _ = totals()["all"]
    asked, bare = (float(value.replace(",", "")) for value in (asked, bare))
    assert reproduce.days(8) == f"{bare / 192:.1f} to {asked / 192:.0f} days"
    assert reproduce.hours_of_starts() == f"{TOGETHER / 3:,.0f}"


def test_the_rows_are_those_that_the_page_on_benchmarks_names() -> None:
    text = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    assert all(f"{rows:,} rows" in text for rows in reproduce.ROWS.values())
    config = yaml.safe_load((ROOT / "config/paper.yaml").read_text())
    without = {name for name, task in config["benchmarks"].items() if "sample" not in task}
    assert without == reproduce.ROWS.keys()


def test_no_job_asks_for_more_memory_than_the_page_says() -> None:
    assert reproduce.memory() == 30


@pytest.fixture(autouse=True)
def _anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def estimates() -> dict[str, list[str]]:
    return cells(reproduce.estimates_table())


def totals() -> dict[str, list[str]]:
    return cells(reproduce.totals_table())
