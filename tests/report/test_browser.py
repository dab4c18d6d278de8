"""The explorer in a real browser, opened from its folder without a network."""

import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.report.controls import Opened, choose, count, listed
from tests.support.browser import DESKTOP, PHONE, Tab
from tests.support.made_up import COUNT, EVIL, ODD, THOUGHTS


def fused_text(page: Page, run: str = "fused") -> str:
    return page.locator(f".run[data-run={run}] .fused").text_content()


def test_it_opens_on_the_fused_run_and_its_first_example(explorer: Opened) -> None:
    page = explorer().page
    assert page.input_value("#run") == "fused"
    assert count(page) == COUNT
    assert page.inner_text("#example h2") == "Example q-00"
    assert len(listed(page)) == 20


def test_spans_make_up_the_text_and_name_who_proposed_them(explorer: Opened) -> None:
    page = explorer(id="q-04").page
    spans = page.locator(".fused .span")
    assert spans.all_inner_texts() == [" the", " duck⏎Next"]
    assert spans.nth(1).locator("s").inner_text() == "⏎Next"
    assert "by ant" in spans.nth(0).get_attribute("aria-label")
    assert "by ant and bee" in spans.nth(1).get_attribute("aria-label")


def test_a_click_shows_the_candidates_the_bars_and_which_is_selected(explorer: Opened) -> None:
    page = explorer(id="q-00").page
    page.locator(".fused .span").nth(0).click()
    assert page.inner_text(".round h4") == "Round 1 of 2"
    rows = page.locator(".candidates tbody tr")
    assert rows.count() == 2
    assert rows.nth(0).inner_text().split() == [
        "␣duck",
        "✓",
        "selected",
        "ant",
        "0.375",
        "0.250",
        "0.500",
    ]
    assert "ahead of “␣goose” by 1.000" in page.inner_text(".round")
    bars = rows.nth(1).locator(".bar")
    assert bars.nth(1).evaluate("e => e.style.getPropertyValue('--size')") == "100%"
    assert rows.nth(0).locator(".bar").nth(0).evaluate(
        "e => parseFloat(e.style.getPropertyValue('--size'))"
    ) == pytest.approx(100 * 0.25 / 1.5)
    assert "0.90 (sure), 0.30 (unsure)" in page.inner_text(".margins")
    assert page.locator(".won").count() == 1


def test_weights_of_a_round_are_shown_where_they_are_not_those_of_the_run(
    explorer: Opened,
) -> None:
    shown = explorer(id="q-06").page.inner_text(".round")
    assert "Weights of the models in this round" in shown
    assert "0.25" in shown
    assert "0.75" in shown
    assert "Weights of" not in explorer(id="q-00").page.inner_text(".round")


def test_pointing_shows_a_round_until_the_pointer_leaves(explorer: Opened) -> None:
    page = explorer(id="q-00").page
    page.locator(".fused .span").nth(1).hover()
    assert page.inner_text(".round h4") == "Round 2 of 2"
    page.mouse.move(5, 5)
    assert page.inner_text(".round h4") == "Round 1 of 2"


def test_markup_that_a_model_wrote_stays_text(explorer: Opened) -> None:
    page = explorer(id="q-03", beside="single").page
    assert fused_text(page) == EVIL
    assert page.locator(".fused img, .fused script, #example b b, .question pre b").count() == 0
    assert page.title().startswith("q-03")
    assert "<b>it</b>" in page.inner_text(".question pre")


def test_letters_of_all_scripts_are_kept(explorer: Opened) -> None:
    assert fused_text(explorer(id="q-06").page) == ODD


def test_an_error_is_shown_with_its_traceback(explorer: Opened) -> None:
    page = explorer(id="q-05", round=2).page
    assert page.inner_text(".run .error") == "Error: no candidate has a finite NLL"
    assert page.locator(".run details pre").text_content() == "Traceback: line 1"
    assert "No candidate had a finite score" in page.inner_text(".round")


def test_a_text_that_the_rounds_do_not_make_up_has_its_rounds_below(explorer: Opened) -> None:
    page = explorer(id="q-07").page
    assert fused_text(page) == " whole answer"
    assert page.locator(".fused .span").count() == 0
    page.locator(".chip").nth(1).click()
    assert page.inner_text(".round h4") == "Round 2 of 2"
    assert "✓ selected" in page.locator(".candidates tr", has_text="whole").inner_text()


def test_thoughts_are_folded_apart_from_the_answer(explorer: Opened) -> None:
    page = explorer(id="q-08").page
    answer, thoughts = page.get_by_label("text by rounds"), page.locator(".thoughts")
    assert answer.text_content() == "duck 8■"
    assert not thoughts.locator(".fused").is_visible()
    assert thoughts.locator("summary").inner_text() == (
        "Thoughts: 4 of 6 words, 2 of 3 rounds; not scored"
    )
    answer.locator(".span").nth(0).click()
    assert page.inner_text(".round h4") == "Round 2 of 3"
    thoughts.locator("summary").click()
    assert thoughts.locator(".fused").text_content() == THOUGHTS
    thoughts.locator(".span").nth(0).click()
    assert page.inner_text(".round h4") == "Round 1 of 3"
    assert page.locator("li > button", has_text="q-08").locator(".answer").inner_text() == "duck 8"
    page = explorer(id="q-10").page
    assert page.get_by_label("text by rounds").text_content() == "(no answer)"
    assert explorer(id="q-00").page.locator(".thoughts").count() == 0


def test_two_runs_stand_side_by_side(explorer: Opened) -> None:
    tab = explorer(id="q-02")
    choose(tab, "beside", "single")
    assert fused_text(tab.page) == " duck 2■"
    assert fused_text(tab.page, "single") == " goose"
    boxes = [each.bounding_box() for each in tab.page.locator(".run").all()]
    assert boxes[0]["y"] == boxes[1]["y"] and boxes[0]["x"] < boxes[1]["x"]


def test_everything_is_reached_with_the_keyboard(explorer: Opened) -> None:
    tab = explorer(id="q-00")
    tab.page.keyboard.press("j")
    tab.page.wait_for_selector("text=Example q-01")
    tab.page.keyboard.press("]")
    assert tab.page.inner_text(".round h4") == "Round 2 of 2"
    tab.page.keyboard.press("k")
    tab.page.wait_for_selector("text=Example q-00")
    tab.page.locator(".fused .span").nth(0).focus()
    tab.page.keyboard.press("ArrowRight")
    assert tab.page.inner_text(".round h4") == "Round 2 of 2"
    tab.page.keyboard.press("n")
    tab.page.wait_for_selector("text=Example q-20")
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("q-33")
    tab.page.wait_for_selector("text=Example q-33")
    tab.page.locator("#link").focus()
    tab.page.keyboard.press("?")
    assert tab.page.locator("#keys").is_visible()
    tab.page.keyboard.press("Escape")
    assert not tab.page.locator("#keys").is_visible()


@pytest.mark.parametrize("dark", [False, True])
def test_ink_and_paper_can_be_told_apart(browser: Browser, site: Path, dark: bool) -> None:
    """Contrast of 4.5 at least (WCAG 2, level AA), for all text colours and both themes."""
    tab = Tab.opened(browser, site, DESKTOP, dark)
    page = tab.open("explorer.html", "#id=q-05&beside=single")
    for selector in (
        "body",
        ".quiet",
        ".error",
        "#link",
        ".candidates td",
        ".snippet",
        ".chip, .span",
    ):
        assert _contrast(page, selector) >= 4.5, selector
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == ("light" if dark else "dark")
    assert _contrast(page, "body") >= 4.5
    tab.assert_clean()


def _contrast(page: Page, selector: str) -> float:
    ink = _luminance(page.locator(selector).first.evaluate("e => getComputedStyle(e).color"))
    paper = _luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    return (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_a_phone_shows_it_without_scrolling_sideways(browser: Browser, site: Path) -> None:
    tab = Tab.opened(browser, site, PHONE, dark=True)
    page = tab.open("explorer.html", "#beside=single&id=q-03")
    tab.assert_fits()
    boxes = [each.bounding_box() for each in page.locator(".run").all()]
    assert boxes[0]["y"] < boxes[1]["y"], "runs stand below each other"
    page.locator("#list button").nth(1).click()
    page.wait_for_selector("text=Example q-01")
    tab.assert_clean()


@pytest.mark.parametrize("torn", [False, True])
def test_a_missing_or_torn_file_is_said(
    browser: Browser, site: Path, tmp_path: Path, torn: bool
) -> None:
    copy = shutil.copytree(site, tmp_path / "copy")
    piece = copy / "data/quiz/runs/fused/rounds-0.js"
    if torn:
        piece.write_bytes(piece.read_bytes()[:50])
    else:
        piece.unlink()
    tab = Tab.opened(browser, copy, DESKTOP, dark=False)
    tab.page.goto((copy / "explorer.html").as_uri())
    tab.page.wait_for_selector("text=copy the whole folder of the report")
