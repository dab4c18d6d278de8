"""`python -m tools.docs pictures`: photograph the report and the explorer of a part of the demo."""

import json
import logging
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from adafuse.errors import UserError

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

_WIDTH, _HEIGHTS = 1300, {"report.png": 610, "explorer.png": 900}
_HIDDEN = "header + .quiet { display: none }"  # the date and the commit of the report
_SHOWN = "!document.getElementById('count') || document.getElementById('example').children.length"
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
        browser.close()


def labels() -> dict[str, list[str]]:
    """Return the headings and the names of the controls of each picture's page, as of today."""
    templates = ROOT / "adafuse" / "report" / "templates"
    pages = {name: address.partition("#")[0] for name, address in ADDRESSES.items()}
    return {
        name: sorted({*_LABEL.findall((templates / f"{page}.j2").read_text(encoding="utf-8"))})
        for name, page in pages.items()
    }
