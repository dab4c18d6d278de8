"""`python -m tools.docs`: write every file that is made from the code, and the method's figure."""

import logging

from tools.docs import figure
from tools.docs.pages import ROOT, files

logger = logging.getLogger("tools.docs")


def main() -> None:
    """Write what is not yet as it must be."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    made = {name: text.encode() for name, text in files().items()}
    made[figure.FILE] = figure.draw(figure.decode())
    for name, content in made.items():
        path = ROOT / name
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
            logger.info("wrote %s", name)


if __name__ == "__main__":
    main()
