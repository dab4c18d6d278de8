"""A real browser that opens pages of a folder and takes down what goes wrong in them."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
DESKTOP, PHONE = {"width": 1300, "height": 900}, {"width": 380, "height": 800}


@contextmanager
def started() -> Iterator[Browser]:
    """Start the machine's Chromium; without one, skip with a reason, and fail in CI."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        reason = f"none of {', '.join(NAMES)} is installed; apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        # Root, in a container, has no sandbox.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Tab:
    """A page, what its console said, and whatever it asked for outside the folder."""

    page: Page
    folder: Path
    said: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)

    @classmethod
    def opened(cls, browser: Browser, folder: Path, size: dict[str, int], dark: bool) -> "Tab":
        context = browser.new_context(
            viewport=size, color_scheme="dark" if dark else "light", offline=True
        )
        tab = cls(context.new_page(), folder)
        tab.page.set_default_timeout(20_000)
        tab.page.on("console", lambda message: tab.said.append(message.text))
        tab.page.on("pageerror", lambda error: tab.said.append(str(error)))
        tab.page.on("request", lambda request: tab._check(request.url))
        return tab

    def _check(self, url: str) -> None:
        if not url.startswith((self.folder.as_uri(), "data:")):
            self.strays.append(url)

    def open(self, name: str, address: str = "") -> Page:
        """Open a page of the folder; an explorer has shown its example when this returns."""
        self.page.goto("about:blank")
        self.strays.clear()
        self.page.goto(f"{(self.folder / name).as_uri()}{address}")
        if name == "explorer.html":
            self.settled()
        return self.page

    def settled(self) -> None:
        """Wait for the list and the example."""
        self.page.wait_for_function(
            "document.getElementById('count').textContent.endsWith('examples')"
            " && document.getElementById('example').children.length > 0"
        )

    def assert_clean(self) -> None:
        """Nothing was said in the console, and nothing was asked of a network."""
        assert self.said == []
        assert self.strays == []

    def assert_fits(self) -> None:
        """The page is no wider than the window."""
        wide = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{wide} pixels too wide"
