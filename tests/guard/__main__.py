"""`python -m tests.guard PART [RESULTS]` lists what is not as recorded; `--record` records it."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.guard import cases
from tests.guard.record import Record, differences, load, of_results, of_rows, save
from tests.workflow.conftest import ROOT, Workplace

CONFIGS = {"demo": ("config/toy.yaml", "results"), "smoke": ("config/smoke.yaml", "results/smoke")}
"""The configuration and the results folder of the parts that the workflow makes."""
DECODED = {"quick": cases.of_methods, "runs": cases.of_runs}
"""The parts that are decoded through Python: every method, and every run of config/toy.yaml."""


def made(part: str, results: Path | None = None) -> Record:
    """Return a part as the package makes it now, or as it is in a results folder."""
    if part in DECODED:
        return {k: v for run, rows in DECODED[part]() for k, v in of_rows(run, rows).items()}
    return of_workflow(part) if results is None else of_results(results)


def of_workflow(part: str) -> Record:
    """Run the workflow in a folder of its own."""
    config, results = CONFIGS[part]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "project")
        folder.mkdir()
        for link, there in (("adafuse", ROOT), ("config", ROOT), ("../shared", ROOT.parent)):
            (folder / link).symlink_to(there / Path(link).name)  # configurations have such paths
        done = Workplace(folder).snakemake("all", configfile=config)
        assert done.returncode == 0, done.stdout + done.stderr
        return of_results(folder / results)


def main() -> None:
    """Print the differences, or record a part in place of what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=[*DECODED, *CONFIGS])
    parser.add_argument("results", type=Path, nargs="?", help="a finished results folder")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    record = made(given.part, given.results)
    if given.record:
        save(given.part, record)
        return
    lines = [*differences(record, load(given.part))]
    sys.stdout.write("".join(f"{line}\n" for line in [*lines, f"{len(lines)} differences"]))
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
