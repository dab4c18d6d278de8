"""`python -m tests.guard PART [RESULTS]` lists what is not as recorded; `--record` records it."""

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

import yaml

from adafuse.workflow.plan import Plan
from adafuse.workflow.stamps import write_stamp
from tests.guard import cases
from tests.guard.record import Record, differences, load, of_results, of_rows, save
from tests.workflow.conftest import ROOT
from tools.docs.results import run_step

ROWS = 6
"""How many rows of each real benchmark are decoded."""
DECODED = {"quick": cases.of_methods, "runs": cases.of_runs}
"""The parts that are decoded through Python: every method, and every run of config/toy.yaml."""


def made(part: str) -> Record:
    """Return a part as the package makes it now."""
    if part == "smoke":
        return of_steps()
    return {k: v for run, rows in DECODED[part]() for k, v in of_rows(run, rows).items()}


def of_steps() -> Record:
    """Do what config/smoke.yaml plans for traces, scores and tables, in this process."""
    with tempfile.TemporaryDirectory() as results, contextlib.chdir(ROOT):
        values = yaml.safe_load(Path("config/smoke.yaml").read_text(encoding="utf-8"))
        for task in values["benchmarks"].values():
            task["limit"] = ROWS
        plan = Plan.of({**values, "results": results})
        for job in plan.all_jobs():
            if job.step in ("case_study", "examples", "report"):
                continue
            digest = {"digest": plan.key(job)} if job.step == "decode" else {}
            run_step(plan, job, **digest)
            for path in plan.outputs(job):
                write_stamp(path, plan.key(job))
        return of_results(Path(results))


def main() -> None:
    """Print the differences, or record a part in place of what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=[*DECODED, "smoke", "demo"])
    parser.add_argument("results", type=Path, nargs="?", help="of a finished demo")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    if (given.part == "demo") != (given.results is not None):
        parser.error("demo needs the folder of its results, and other parts none")
    record = made(given.part) if given.results is None else of_results(given.results)
    if given.record:
        save(given.part, record)
        return
    lines = [*differences(record, load(given.part))]
    sys.stdout.write("".join(f"{line}\n" for line in [*lines, f"{len(lines)} differences"]))
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
