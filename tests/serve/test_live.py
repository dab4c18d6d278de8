"""The live page in a real browser."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.serve.conftest import Server, started
from tests.support.browser import DESKTOP, PHONE

PROMPT = "Once upon a time"
"""After it the models write whole characters: nothing goes on after a half one."""


@pytest.fixture(scope="module")
def keyed(random_pair, tmp_path_factory) -> Iterator[Server]:
    """A server with a key and traces, whose models disagree and write on and on."""
    folder = tmp_path_factory.mktemp("keyed")
    models = [model.name for model in random_pair.models]
    traces = ("--traces", str(folder / "traces"))
    with started(folder, *traces, models=models, ADAFUSE_API_KEY="secret") as running:
        yield running


@contextmanager
def opened(browser: Browser, server: Server, size=DESKTOP, address="") -> Iterator[Page]:
    """Open the page with its key; it asks nobody else, and no script fails."""
    context = browser.new_context(viewport=size)
    page, said, asked = context.new_page(), [], []
    page.set_default_timeout(60_000)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{server.url}/{address}")
    page.fill("#key", "secret")
    page.press("#key", "Tab")
    expect(page.locator("#method")).to_have_value("adafuse", timeout=60_000)
    yield page
    assert said == []
    assert all(url.startswith((server.url, "data:")) for url in asked)
    context.close()


def ended(page: Page, status: str) -> None:
    expect(page.locator("#status")).to_have_text(status, timeout=120_000)
    expect(page.locator("#end")).to_be_disabled()


def decode(page: Page, tokens: int = 8) -> None:
    page.fill("#prompt", PROMPT)
    page.fill("#max_tokens", str(tokens))
    page.press("#prompt", "Control+Enter")


def test_a_text_is_decoded_gone_on_with_and_edited(browser, keyed):
    with opened(browser, keyed, PHONE) as page:
        assert page.evaluate("localStorage.length + sessionStorage.length") == 0
        decode(page)
        ended(page, "Finished: length limit.")
        spans = page.locator(".fused .span")
        assert spans.count() > 1
        first = spans.first.get_attribute("aria-label")
        spans.nth(1).click()
        other = page.locator(".candidates tr:not(.won) .go").first
        text = other.get_attribute("aria-label").removeprefix("go on with “").removesuffix("”")
        other.press("Enter")
        ended(page, "Finished: length limit.")
        assert spans.first.get_attribute("aria-label") == first
        spans.nth(1).click()
        assert page.inner_text(".round p").startswith("Chosen by you, proposed by ")
        assert text in page.inner_text(".won .text")
        page.click("#edit summary")
        page.fill("#text", "<b>An</b> answer")
        page.click("#resume")
        ended(page, "Finished: length limit.")
        assert page.locator(".fused").text_content().startswith("<b>An</b> answer")
        assert page.locator(".fused b:not(.end)").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_rounds_come_until_somebody_stops_them(browser, keyed):
    with opened(browser, keyed) as page:
        decode(page, 3000)
        expect(page.locator(".fused .span").nth(2)).to_be_visible(timeout=60_000)
        page.keyboard.press("Escape")
        ended(page, "Stopped.")
        assert page.locator("#error").is_hidden()


def test_a_link_shows_the_finished_trace_again(browser, keyed):
    with opened(browser, keyed) as page:
        decode(page)
        ended(page, "Finished: length limit.")
        text = page.locator(".fused").text_content()
        link = page.get_attribute("#trace a", "href")
    with opened(browser, keyed, address=link) as page:
        ended(page, f"Trace {link.removeprefix('#trace=')}.")
        assert page.locator(".fused").text_content() == text
        assert page.input_value("#prompt") == PROMPT


def test_what_the_server_refuses_is_said(browser, keyed):
    with opened(browser, keyed) as page:
        page.click("#more summary")
        page.fill("#options [name=branching]", "0")
        decode(page)
        expect(page.locator("#error")).to_contain_text("branching", timeout=60_000)
