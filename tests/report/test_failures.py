"""Failures side by side: in a terminal, as CSV, and as a page in a real browser."""

import csv
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from typer.testing import CliRunner

from adafuse.benchmarks.shards import PreparedRow, write_prepared
from adafuse.cli.main import app
from adafuse.report.pages import write_explorer
from tests.report.conftest import World
from tests.support.browser import DESKTOP, PHONE, Tab
from tests.support.made_up import EVIL, RIGHT

RUNS = ["m", "l", "both"]


@pytest.fixture
def results(world: World) -> Path:
    """Four rows of `qa`."""
    for run, right in zip(RUNS, ("1100", "1010", "1110"), strict=True):
        world.score("qa", run, right)
        world.trace("qa", run, (1.0,) * 4)
    rows = [PreparedRow(f"r{n}", f"p{n}", f"Who, {n}?", ("Ann", "An,n")) for n in range(4)]
    write_prepared(world.root / "benchmarks/qa/rows.jsonl", rows)
    world.store_config(world.experiment("scores", ["qa"], ["m"]))
    return world.root


def show(results: Path, *options: str) -> str:
    done = CliRunner().invoke(app, ["show", str(results), "--wrong", *options])
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(*options: object) -> str:
    done = CliRunner().invoke(app, ["show", *map(str, options)])
    assert done.exit_code != 0
    return str(done.exception)


def numbers(said: str) -> list[str]:
    return re.findall(r"^row (\d+)", said, re.MULTILINE)


def test_rows_that_some_run_gets_wrong_have_all_answers_beside_the_gold_one(results: Path) -> None:
    said = show(results)
    assert "qa, strict scoring: 3 rows that some run gets wrong, 1 that all get wrong" in said
    assert numbers(said) == ["2", "3", "4"]
    second = said.split("row ")[1]
    assert [line.split() for line in second.splitlines()] == [
        ["2", "r1"], ["question", "Who,", "1?"], ["gold", "Ann", "|", "An,n"],
        ["✓", "m", "x"], ["✗", "l", "x"], ["✓", "both", "x"], [],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--runs", "m,both"], ["3", "4"]),
        (["--runs", "l"], ["2", "4"]),
        (["--right-in", "both"], ["2", "3"]),
        (["--right-in", "both,m", "--wrong-in", "l"], ["2"]),
        (["--wrong-in", "m,l,both"], ["4"]),
    ],
)
def test_they_are_chosen_by_who_is_right_and_who_is_wrong(
    results: Path, options: list[str], found: list[str]
) -> None:
    assert numbers(show(results, *options)) == found
    lines = show(results, *options, "--json").splitlines()
    assert [str(json.loads(line)["row"]) for line in lines] == found


def test_a_csv_file_has_a_column_for_each_answer(results: Path, tmp_path: Path) -> None:
    assert show(results, "--runs", "m,l", "--csv", str(tmp_path / "f.csv")).startswith("3 rows in")
    with (tmp_path / "f.csv").open(newline="") as file:
        first = next(csv.DictReader(file))
    assert first == {
        "benchmark": "qa", "protocol": "strict", "row": "2", "id": "r1", "question": "Who, 1?",
        "gold": "Ann | An,n", "m": "x", "m_scored": "x", "m_value": "1.0000", "m_right": "true",
        "l": "x", "l_scored": "x", "l_value": "0.0000", "l_right": "false",
    }  # fmt: skip


def test_what_is_not_there_is_named(results: Path) -> None:
    assert "unknown scored run 'bth'" in refused(results, "--wrong", "--runs", "bth")
    assert "unknown run 'l'" in refused(results, "--wrong", "--runs", "m", "--right-in", "l")
    assert "unknown benchmark 'q'" in refused(results, "--wrong", "--benchmark", "q")
    assert "no published score" in refused(results, "--wrong", "--protocol", "published")
    assert "leave out --list" in refused(results, "--wrong", "--list")
    assert "choose what --wrong shows" in refused(results, "--runs", "m")
    assert "missing argument 'TRACE'" in refused()


@pytest.fixture(scope="module")
def pages(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The explorer's data with the page over them, as a report has it."""
    folder = shutil.copytree(site, tmp_path_factory.mktemp("pages") / "report")
    write_explorer(folder, report=True)
    return folder


@pytest.fixture(params=[(DESKTOP, False), (PHONE, True)], ids=["desktop", "phone"])
def tab(browser: Browser, pages: Path, request: pytest.FixtureRequest) -> Iterator[Tab]:
    size, dark = request.param
    tab = Tab.opened(browser, pages, size, dark)
    yield tab
    tab.assert_clean()
    tab.page.context.close()


@pytest.fixture
def opened(tab: Tab) -> Callable[..., Page]:
    def page(address: str = "") -> Page:
        settled(tab.open("failures.html", address))
        return tab.page

    return page


def settled(page: Page) -> None:
    page.wait_for_function("/ rows/.test(document.getElementById('count').textContent)")


def choose(page: Page, selector: str, value: str) -> None:
    page.evaluate("document.getElementById('count').textContent = ''")
    page.select_option(selector, value)
    settled(page)


def rows(page: Page) -> list[int]:
    shown = page.locator("#rows article").all()
    return [int(each.get_attribute("data-row") or "") for each in shown]


def test_the_page_shows_the_same_rows_and_chooses_them_the_same_way(
    opened: Callable[..., Page], tab: Tab
) -> None:
    page, numbers = opened(), range(len(RIGHT["fused"]))
    wrong = [n for n in numbers if not (RIGHT["fused"][n] and RIGHT["single"][n])]
    assert page.inner_text("#count") == f"{len(wrong)} of 45 rows"
    assert rows(page) == wrong[:20]
    tab.assert_fits()
    choose(page, "[data-run=fused]", "right")
    choose(page, "[data-run=single]", "wrong")
    chosen = [n for n in numbers if RIGHT["fused"][n] and not RIGHT["single"][n]]
    assert rows(page) == chosen[:20]
    card = page.locator("#rows article").nth(0)
    assert card.locator("h3").inner_text() == f"Row {chosen[0] + 1}"
    assert card.locator(".verdict").all_inner_texts() == ["✓ right", "✗ wrong, cut"]
    assert "the duck | a duck" in card.inner_text()
    choose(page, "[data-run=fused]", "")
    assert rows(page) == [n for n in numbers if not RIGHT["single"][n]][:20]
    page.reload()
    settled(page)
    assert card.locator(".given h4").all_inner_texts() == ["single"]


def test_markup_and_errors_of_answers_are_shown_as_they_are(opened: Callable[..., Page]) -> None:
    page = opened()
    assert EVIL.strip() in page.locator("[data-row='3'] .given pre").all_text_contents()
    assert page.locator("#rows img, #rows script").count() == 0
    assert "✓ right, error" in page.inner_text("[data-row='5']")
    given = page.evaluate("adafuse.given('quiz', 'fused', 'strict', 8)")
    assert (given["text"], given["value"]) == ("duck 8", 1), "thoughts are no part of an answer"


def test_notes_are_kept_searched_and_saved_with_the_answers(
    opened: Callable[..., Page], tab: Tab, tmp_path: Path
) -> None:
    page = opened()
    page.fill("[data-row='3'] textarea", 'markup, "again"')
    page.reload()
    settled(page)
    assert page.input_value("[data-row='3'] textarea") == 'markup, "again"'
    choose(page, "#noted", "1")
    assert rows(page) == [3]
    with page.expect_download() as saved:
        page.click("#csv")
    saved.value.save_as(tmp_path / "saved.csv")
    with (tmp_path / "saved.csv").open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert (row["row"], row["id"], row["note"]) == ("4", "q-03", 'markup, "again"')
    assert (row["fused"], row["fused_right"], row["single_value"]) == (EVIL, "false", "0")
    page.fill("[data-row='3'] textarea", "")
    tab.strays.clear()  # the file that was saved


def test_an_answer_leads_to_its_rounds(opened: Callable[..., Page], tab: Tab) -> None:
    page = opened()
    page.locator("[data-row='3'] h4 a").nth(1).click()
    tab.settled()
    assert page.inner_text("#example h2") == "Example q-03"
    assert page.input_value("#run") == "single"
