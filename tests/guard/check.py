"""Compare with the record: `python -m tests.guard.check PART [RESULTS]` lists each difference."""

import argparse
import sys
from pathlib import Path

from tests.guard.parts import PARTS, made
from tests.guard.store import Record, differences


def changes(part: str, results: Path | None = None) -> list[str]:
    """Say what is not as recorded, a line each."""
    return list(differences(made(part, results), Record.load(part)))


def main() -> None:
    """Print the differences; the exit status is 1 if there are some."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("results", type=Path, nargs="?", help="a finished results folder")
    given = parser.parse_args()
    found = changes(given.part, given.results)
    sys.stdout.write("".join(f"{line}\n" for line in [*found, f"{len(found)} differences"]))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
