"""What the explorer lists, and where its links and the Back button lead, in a real browser."""

from collections.abc import Callable

import pytest

from tests.report.controls import Opened, choose, count, listed, search
from tests.support.made_up import COUNT


@pytest.mark.parametrize(
    ("show", "wanted"),
    [
        ("right", lambda n: n % 3 != 0),
        ("wrong", lambda n: n % 3 == 0),
        ("better", lambda n: n % 3 != 0 and n % 2 == 1),
        ("worse", lambda n: n % 3 == 0 and n % 2 == 0),
        ("both_wrong", lambda n: n % 3 == 0 and n % 2 == 1),
        ("differ", lambda n: True),
    ],
)
def test_filters_by_right_and_wrong_here_and_beside(
    explorer: Opened, show: str, wanted: Callable[[int], bool]
) -> None:
    tab = explorer(beside="single")
    choose(tab, "show", show)
    expected = [f"q-{number:02d}" for number in range(COUNT) if wanted(number)]
    assert count(tab.page) == len(expected)
    assert listed(tab.page) == expected[:20]
    assert tab.page.inner_text("#example h2") == f"Example {expected[0]}"


def test_filters_by_how_decoding_ended(explorer: Opened) -> None:
    tab = explorer()
    choose(tab, "stop", "error")
    assert listed(tab.page) == ["q-05"]
    choose(tab, "stop", "length")
    assert count(tab.page) == 0
    assert "No example passes" in tab.page.inner_text("#list")


def test_search_finds_pieces_of_texts_prompts_and_ids(explorer: Opened) -> None:
    tab = explorer()
    for words, found in (("学校", ["q-06"]), ("QUESTION 12:", ["q-12"]), ("q-44", ["q-44"])):
        search(tab, words)
        assert listed(tab.page) == found
    search(tab, "")
    assert count(tab.page) == COUNT


def test_pages_of_the_list(explorer: Opened) -> None:
    tab = explorer()
    assert tab.page.inner_text("#page") == "page 1 of 3"
    for _ in range(2):
        tab.page.click("#next")
        tab.settled()
    tab.page.wait_for_function("document.getElementById('page').textContent == 'page 3 of 3'")
    assert listed(tab.page) == ["q-40", "q-41", "q-42", "q-43", "q-44"]
    assert tab.page.locator("#next").is_disabled()


def test_a_link_opens_on_exactly_its_example_and_round(explorer: Opened) -> None:
    tab = explorer(show="wrong", id="q-09")
    tab.page.locator(".fused .span").nth(1).click()
    link = tab.page.get_attribute("#link", "href")
    tab.open("explorer.html", link)
    assert tab.page.inner_text("#example h2") == "Example q-09"
    assert tab.page.inner_text(".round h4") == "Round 2 of 2"
    assert tab.page.locator("[aria-current]").inner_text().startswith("q-09")


def test_an_example_that_the_filters_leave_out_is_still_shown(explorer: Opened) -> None:
    page = explorer(show="wrong", id="q-01").page
    assert page.inner_text("#example h2") == "Example q-01"
    assert "q-01" not in listed(page)


def test_an_address_that_nothing_belongs_to_says_so(explorer: Opened) -> None:
    page = explorer(benchmark="gone", run="<i>", id="nobody", round="x", page="99").page
    assert (
        page.inner_text("#notice") == "There is no benchmark gone here. There is no run <i> here."
    )
    assert "There is no example nobody in quiz." in page.inner_text("#example")
    assert page.input_value("#run") == "fused"


def test_an_address_of_a_run_that_is_not_here_says_so(explorer: Opened) -> None:
    page = explorer(run="nope", beside="single").page
    assert page.inner_text("#notice") == "There is no run nope here."
    assert explorer(run="fused").page.locator("#notice").is_hidden()


def test_clearing_the_search_keeps_the_example_and_its_round(explorer: Opened) -> None:
    tab = explorer()
    search(tab, "QUESTION 12:")
    tab.page.keyboard.press("Escape")
    tab.page.wait_for_function(
        f"document.getElementById('count').textContent.startsWith('{COUNT}')"
    )
    tab.page.wait_for_selector("text=Example q-12")
    tab.page.keyboard.press("j")
    tab.page.wait_for_selector("text=Example q-13")


def test_another_example_begins_at_its_first_round(explorer: Opened) -> None:
    tab = explorer(id="q-01", round=2)
    assert tab.page.inner_text(".round h4") == "Round 2 of 2"
    search(tab, "QUESTION 12:")
    tab.page.wait_for_selector("text=Example q-12")
    assert tab.page.inner_text(".round h4") == "Round 1 of 2"


def test_back_undoes_another_run(explorer: Opened) -> None:
    tab = explorer(id="q-01")
    choose(tab, "run", "single")
    tab.page.wait_for_selector(".run[data-run=single]")
    tab.page.go_back()
    tab.page.wait_for_selector(".run[data-run=fused]")


def test_back_returns_to_the_example_before(explorer: Opened) -> None:
    tab = explorer(id="q-01")
    tab.page.locator("#list button").nth(7).click()
    tab.page.wait_for_selector("text=Example q-07")
    tab.page.go_back()
    tab.page.wait_for_selector("text=Example q-01")
