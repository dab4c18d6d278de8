"""`python -m tools.docs`: write every file that is made from the code, and the method's figure.

`python -m tools.docs pictures` photographs the report and the explorer, which takes some minutes
and a Chromium.
"""

import logging
import sys

from tools.docs import figure, pictures
from tools.docs.pages import ROOT, files

logger = logging.getLogger("tools.docs")


def main() -> None:
    """Write what is not yet as it must be, or take the pictures."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if sys.argv[1:] == ["pictures"]:
        pictures.take()
        return
    made = {name: text.encode() for name, text in files().items()}
    made[figure.FILE] = figure.draw(figure.decode())
    for name, content in made.items():
        path = ROOT / name
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
            logger.info("wrote %s", name)


if __name__ == "__main__":
    main()
