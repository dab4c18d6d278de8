"""Working the explorer's controls as a user does."""

from collections.abc import Callable

from playwright.sync_api import Page

from tests.support.browser import Tab

Opened = Callable[..., Tab]


def count(page: Page) -> int:
    return int(page.inner_text("#count").split()[0])


def choose(tab: Tab, control: str, value: str) -> None:
    tab.page.select_option(f"#{control}", value)
    tab.settled()


def search(tab: Tab, words: str) -> None:
    tab.page.evaluate("document.getElementById('count').textContent = ''")
    tab.page.fill("#search", words)
    tab.settled()


def listed(page: Page) -> list[str]:
    return page.locator("#list .id").all_inner_texts()
