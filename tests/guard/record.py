"""Write the record: `python -m tests.guard.record PART [RESULTS]`."""

import argparse
from pathlib import Path

from tests.guard.parts import PARTS, made


def main() -> None:
    """Make a part and store it, in place of what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("results", type=Path, nargs="?", help="a finished results folder")
    given = parser.parse_args()
    made(given.part, given.results).store(given.part)


if __name__ == "__main__":
    main()
