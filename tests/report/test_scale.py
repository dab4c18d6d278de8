"""50,000 examples of ten rounds: the sizes that the explorer promises to cope with."""

import time
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser

from adafuse.report.explorer import (
    BenchmarkEntry,
    Manifest,
    Question,
    RunEntry,
    RunFiles,
    write_benchmark,
    write_manifest,
)
from adafuse.report.pages import write_explorer
from tests.support.browser import DESKTOP, Tab
from tests.support.many_traces import large_outcomes, large_trace

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("browser")]  # they share the pages

EXAMPLES, ROUNDS = 50_000, 10
BUILT, OPENED, MEMORY = 120, 6, 300e6
"""CPU seconds, seconds, bytes."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A folder with the explorer, and the CPU seconds that making it took."""
    folder = tmp_path_factory.mktemp("large")
    trace, outcomes = folder / "run.parquet", folder / "run.outcomes.parquet"
    ids = large_trace(trace, EXAMPLES, ROUNDS, seed=0)
    large_outcomes(outcomes, ids, seed=1)
    started = time.process_time()
    asked = [Question(name, f"Question: what of {name}?\nAnswer:", ("the lake",)) for name in ids]
    files = RunFiles("run", trace, {"strict": outcomes})
    write_benchmark(folder / "data", "large", asked, [files])
    entries = {"run": RunEntry("adafuse", ("ant", "bee"), 0.7)}
    large = BenchmarkEntry("large", EXAMPLES, ("run",), "exact match", binary=True)
    write_manifest(folder / "data", Manifest([large], entries, ["ant", "bee"], ["strict"]))
    write_explorer(folder, report=False)
    return folder, time.process_time() - started


def test_it_is_built_in_two_minutes(built: tuple[Path, float]) -> None:
    assert built[1] < BUILT


def test_it_opens_at_once_and_stays_small(browser: Browser, built: tuple[Path, float]) -> None:
    tab = Tab.opened(browser, built[0], DESKTOP, dark=False)
    started = time.monotonic()
    tab.open("explorer.html")
    assert time.monotonic() - started < OPENED
    for words, found in (("row-04999", 10), ("what of row-0", EXAMPLES)):
        tab.page.evaluate("document.getElementById('count').textContent = ''")
        tab.page.fill("#search", words)
        tab.page.wait_for_function(
            f"document.getElementById('count').textContent.startsWith('{found} of')", timeout=60_000
        )
    tab.open("explorer.html", "#id=row-049999")
    for number in (0, 9_000, 18_000, 27_000, 36_000, 45_000):
        tab.open("explorer.html", f"#id=row-{number:06d}")
        assert tab.page.inner_text("#example h2") == f"Example row-{number:06d}"
        for _ in range(5):
            tab.page.keyboard.press("n")
            tab.settled()
    assert _largest_renderer() < MEMORY
    tab.assert_clean()


def _largest_renderer() -> int:
    """Memory that is a page's own (USS), of the page that takes most."""
    return max(
        process.memory_full_info().uss
        for process in psutil.Process().children(recursive=True)
        if "--type=renderer" in process.cmdline()
    )
