"""`python -m adafuse.docs`: write every file that is made from the code."""

import logging

from adafuse.docs.pages import TEMPLATES, files

logger = logging.getLogger("adafuse.docs")


def main() -> None:
    """Write what is not yet as it must be."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    root = TEMPLATES.parents[2]
    for name, text in files().items():
        path = root / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            logger.info("wrote %s", name)


if __name__ == "__main__":
    main()
