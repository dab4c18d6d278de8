"""The report of the toy run in a real browser, copied elsewhere and without a network."""

import csv
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from adafuse.storage.parquet import read_rows
from tests.support.browser import DESKTOP, PHONE, Tab

from .conftest import Workplace

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def copied(demo: Workplace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nothing but the folder of the report, where nothing else is."""
    return shutil.copytree(
        demo.folder / "results/report", tmp_path_factory.mktemp("elsewhere") / "my report"
    )


@pytest.fixture(params=[(DESKTOP, False), (PHONE, True)], ids=["desktop", "phone"])
def tab(browser: Browser, copied: Path, request: pytest.FixtureRequest) -> Iterator[Tab]:
    size, dark = request.param
    tab = Tab.opened(browser, copied, size, dark)
    yield tab
    tab.assert_clean()
    tab.page.context.close()


def test_the_table_of_the_report_is_the_table_of_the_workflow(tab: Tab, demo: Workplace) -> None:
    page = tab.open("index.html")
    with (demo.folder / "results/tables/main.csv").open() as file:
        wanted = {row["run"]: row for row in csv.DictReader(file)}
    strict = page.locator("table.scores").nth(0)
    assert strict.locator("tbody tr").count() == len(wanted)
    for run, row in wanted.items():
        cells = strict.locator(f"tr:has(th a:text-is('{run}')) td").all_inner_texts()
        assert cells[-1] == f"{float(row['macro_average']):.1f}"
        assert cells[2].startswith(f"{float(row['toy_qa']):.1f}")
    tab.assert_fits()


def test_significance_and_both_protocols_are_shown(tab: Tab) -> None:
    page = tab.open("index.html")
    assert page.locator("table.scores").count() == 2
    fused = page.locator("table.scores").nth(0).locator("tr:has(th a:text-is('adafuse'))")
    assert fused.locator("sup").nth(0).inner_text() == "*"
    single = page.locator("table.scores").nth(0).locator("tr:has(th a:text-is('mistral'))")
    assert set(single.locator("sup").all_inner_texts()) == {""}
    # Per protocol a table of all ensembles against their models, and one per benchmark.
    assert page.locator("#comparison table").count() == 2 * (1 + 4)


def test_charts_are_drawn_and_tell_their_numbers(tab: Tab) -> None:
    page = tab.open("index.html")
    assert "cannot be compared" in page.inner_text("#cost"), "no benchmark of the demo is timed"
    for name in ("scores", "words"):
        chart = page.locator(f"#chart-{name}")
        chart.locator("svg.marks").wait_for()
        chart.locator("svg.marks path[aria-roledescription]").last.hover(force=True)
        page.locator("#vg-tooltip-element.visible").wait_for()
        assert "row" in page.locator("#vg-tooltip-element").inner_text()


def test_every_run_tells_where_it_came_from(tab: Tab) -> None:
    page = tab.open("index.html")
    page.locator("#origin summary", has_text="adafuse_b3").click()
    told = page.locator("#origin details[open]").inner_text()
    for words in ("mistral (content ", "tau = 0.7", "branching = 3", "torch", "commit"):
        assert words in told


def test_from_the_report_to_one_example_and_back(tab: Tab, demo: Workplace) -> None:
    page = tab.open("index.html")
    page.click("text=Trace explorer")
    tab.settled()
    page.select_option("#benchmark", "toy_math")
    tab.settled()
    page.select_option("#run", "adafuse_b3")
    page.wait_for_selector(".run[data-run=adafuse_b3]")
    rows = read_rows(demo.folder / "results/traces/toy_math/adafuse_b3.parquet", ["id", "text"])
    texts = {row["id"]: row["text"] for row in rows}
    number = page.inner_text("#example h2").removeprefix("Example ")
    spans = page.locator(".fused .span").evaluate_all(
        "all => all.map(e => [...e.childNodes].filter(n => n.nodeType == 3)"
        ".map(n => n.textContent).join('')).join('')"
    )
    assert spans == texts[number]
    tab.assert_fits()
    page.click("text=Report")
    page.wait_for_selector("table.scores")


def test_wrong_here_and_right_there_lists_what_the_outcomes_say(tab: Tab, demo: Workplace) -> None:
    folder = demo.folder / "results/scores/strict/toy_qa"
    values = {
        run: {row["id"]: row["value"] for row in read_rows(folder / f"{run}.outcomes.parquet")}
        for run in ("adafuse", "mistral")
    }
    wanted = [n for n, value in values["mistral"].items() if value < values["adafuse"][n]]
    page = tab.open("explorer.html", "#benchmark=toy_qa&run=mistral&beside=adafuse&show=worse")
    assert page.inner_text("#count") == f"{len(wanted)} of 100 examples"
    assert len(wanted) == 23
    assert set(page.locator("#list .id").all_inner_texts()) <= set(wanted)


def test_snakemake_s_own_report_has_the_tables_with_captions(demo: Workplace) -> None:
    done = demo.snakemake("--report", "own.zip")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (demo.folder / "own.zip").stat().st_size > 10_000
    assert "Adding main.csv" in done.stdout + done.stderr
