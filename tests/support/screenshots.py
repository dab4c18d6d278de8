"""The pictures of the docs: python -m tests.support.screenshots results/report docs/figures."""

import sys
from pathlib import Path

from tests.support.browser import Tab, started

EXAMPLE = "#benchmark=toy_en_de&run=adafuse_b3&beside=mistral&show=better&id=en-de-test-060&round=2"
SIZE = {"width": 1320, "height": 860}


def main(report: Path, out: Path) -> None:
    """Take the picture of the explorer that stands in the README."""
    with started() as browser:
        tab = Tab.opened(browser, report.resolve(), SIZE, dark=False)
        tab.open("explorer.html", EXAMPLE).screenshot(path=out / "explorer.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
