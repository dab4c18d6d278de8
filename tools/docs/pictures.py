"""`python -m tools.docs pictures`: photograph the pages of a part of the demo and of the server."""

import json
import logging
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import yaml

from adafuse.errors import UserError

if TYPE_CHECKING:
    from playwright.sync_api import Browser

logger = logging.getLogger("tools.docs")

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures"
LABELS = FIGURES / "labels.json"
"""What the pages said when the pictures were taken; a test compares it with today's."""

MAIN = {
    "benchmarks": ["toy_qa", "toy_en_de"],
    "runs": ["mistral", "llama", "adafuse", "adafuse_b3"],
    "study": ["adafuse", "adafuse_b3"],
}
ADDRESSES = {
    "report.png": "index.html",
    "explorer.png": "explorer.html#benchmark=toy_en_de&run=adafuse_b3&beside=mistral&show=better"
    "&id=en-de-test-060&round=2",
}
"""Of each picture, the page and what it shows first."""

LIVE = "live.png"
"""The live page, where the README's example was decoded."""

PROMPT = "Question: Which city is the capital of Rustan?\nAnswer:"

_WIDTH, _HEIGHTS = 1300, {"report.png": 610, "explorer.png": 900, LIVE: 760}
_HIDDEN = "header + .quiet { display: none }"  # the date and the commit of the report
_SHOWN = "!document.getElementById('count') || document.getElementById('example').children.length"
_TOY = "adafuse/toy/models/{}"
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_LABEL = re.compile(r"<(?:h1|h2|label|nav|a|button)\b[^>]*>\s*([^<>{}]*[^<>{}\s])\s*<")


def take() -> None:
    """Decode, score and compare two toy benchmarks, and photograph the pages; some minutes."""
    with TemporaryDirectory() as folder:
        photograph(_report(Path(folder)))
    LABELS.write_text(json.dumps(labels(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _report(folder: Path) -> Path:
    """Make a report in a folder as `make demo` does, from fewer runs and without its note."""
    config = yaml.safe_load((ROOT / "config" / "toy.yaml").read_text(encoding="utf-8"))
    config |= {"results": str(folder / "results"), "main": MAIN, "experiments": {}}
    del config["note"]
    written = folder / "config.yaml"
    written.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    command = ["snakemake", "--configfile", str(written), "--cores", "2", "--quiet", "all"]
    subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=True)
    return folder / "results" / "report"


def photograph(report: Path) -> None:
    """Write the pictures of a report."""
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, _CHROMIUM)), None)
    if program is None:
        raise UserError(f"none of {', '.join(_CHROMIUM)} is installed; apt-get install chromium")
    with sync_playwright() as playwright:
        # Root, in a container, has no sandbox.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for name, address in ADDRESSES.items():
            page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHTS[name]})
            page.goto(f"{report.as_uri()}/{address}")
            page.wait_for_function(_SHOWN)
            page.add_style_tag(content=_HIDDEN)
            page.screenshot(path=FIGURES / name)
            logger.info("wrote %s", FIGURES / name)
        _photograph_live(browser)
        browser.close()


def _photograph_live(browser: "Browser") -> None:
    """Decode a prompt on the page of `adafuse serve`, and write the picture of it."""
    models = [word for name in ("mistral", "llama") for word in ("--model", _TOY.format(name))]
    command = [sys.executable, "-m", "adafuse", "serve", *models, "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            found = filter(None, (re.search(r"(http://\S+)/v1$", line) for line in server.stderr))
            page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHTS[LIVE]})
            page.goto(f"{next(found)[1]}/")
            page.fill("#prompt", PROMPT)
            page.fill("#stop", "\\n")
            page.click("#more summary")
            page.get_by_label("branching").fill("2")
            page.click("#more summary")
            page.click("#start")
            page.locator("#status", has_text="Finished").wait_for()
            page.screenshot(path=FIGURES / LIVE)
            logger.info("wrote %s", FIGURES / LIVE)
        finally:
            server.terminate()


def labels() -> dict[str, list[str]]:
    """Return the headings and the names of the controls of each picture's page, as of today."""
    templates = ROOT / "adafuse" / "report" / "templates"
    pages = {name: templates / f"{a.partition('#')[0]}.j2" for name, a in ADDRESSES.items()}
    pages[LIVE] = ROOT / "adafuse" / "serve" / "page" / "live.html"
    return {
        name: sorted({*_LABEL.findall(page.read_text(encoding="utf-8"))})
        for name, page in pages.items()
    }
