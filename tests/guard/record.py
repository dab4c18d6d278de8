"""Write the record: `python -m tests.guard.record PART [RESULTS]`."""

import argparse
from pathlib import Path

from tests.guard.parts import STORED, made
from tests.guard.store import Record


def main() -> None:
    """Make a part and store it, in place of what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=STORED)
    parser.add_argument("results", type=Path, nargs="?", help="a finished results folder")
    given = parser.parse_args()
    *before, name = STORED[given.part]
    made(given.part, given.results).without(Record.load(*before)).store(name)


if __name__ == "__main__":
    main()
