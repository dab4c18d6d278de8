"""The explorer over a handful of made-up traces, open in a browser."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from adafuse.explorer.benchmark_data import Question, RunFiles, write_benchmark
from adafuse.explorer.manifest import BenchmarkEntry, Manifest, RunEntry, write_manifest
from adafuse.explorer.pages import write_explorer
from adafuse.scoring.outcomes import Outcome, write_outcomes
from adafuse.workflow.traces import RESULT_FIELDS, result_columns, write_table
from tests.support.browser import DESKTOP, Tab
from tests.support.made_up import ANSWERS, FUSED, PROMPTS, RIGHT, SINGLE, identifiers


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with explorer.html: 45 questions, a fused run and a single one."""
    import pyarrow as pa

    folder = tmp_path_factory.mktemp("site")
    files = []
    for run, results in {"fused": FUSED, "single": SINGLE}.items():
        rows = [
            {"id": name, **result_columns(result)}
            for name, result in zip(identifiers(), results, strict=True)
        ]
        trace, outcomes = folder / f"{run}.parquet", folder / f"{run}.outcomes.parquet"
        write_table(trace, [pa.field("id", pa.string()), *RESULT_FIELDS], rows, {})
        values = [
            Outcome(row["id"], row["text"], ("x",), right)
            for row, right in zip(rows, RIGHT[run], strict=True)
        ]
        write_outcomes(outcomes, values, {})
        files.append(RunFiles(run, trace, {"strict": outcomes}))
    asked = zip(identifiers(), PROMPTS, ANSWERS, strict=True)
    questions = [Question(name, prompt, answers) for name, prompt, answers in asked]
    write_benchmark(folder / "data", "quiz", questions, files)
    entries = {
        "fused": RunEntry("adafuse", ("ant", "bee"), 0.7),
        "single": RunEntry("single", ("ant",)),
    }
    quiz = BenchmarkEntry("quiz", len(questions), ("fused", "single"), accuracy=True)
    write_manifest(folder / "data", Manifest([quiz], entries, ["ant", "bee"], ["strict"]))
    write_explorer(folder, report=False)
    return folder


@pytest.fixture
def tab(browser: Browser, site: Path) -> Iterator[Tab]:
    """A tab on the folder; whatever a test does, the console stays silent."""
    tab = Tab.opened(browser, site, DESKTOP, dark=False)
    yield tab
    tab.assert_clean()
    tab.page.context.close()


@pytest.fixture
def explorer(tab: Tab) -> Callable[..., Tab]:
    """Opens the explorer with parts of an address."""

    def opened(**address: object) -> Tab:
        said = "&".join(f"{name}={value}" for name, value in address.items())
        tab.open("explorer.html", f"#{said}" if said else "")
        return tab

    return opened
