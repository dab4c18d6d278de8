"""The parts of the record, and what each is made from."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.guard import quick, runs
from tests.guard.store import Record
from tests.workflow.conftest import ROOT, Workplace

SHARED = ROOT.parent / "shared/data/benchmarks"

DECODED = {"quick": quick.decoded, "runs": runs.decoded}
"""The parts that are decoded through Python, with what decodes them."""

TARGETS = {
    "demo": ("all", "config/toy.yaml", "results"),
    "smoke": ("all", "config/smoke.yaml", "results/smoke"),
}
"""Of a part that the workflow makes: its target, its configuration and its results folder."""

PARTS = (*DECODED, *TARGETS)


def made(part: str, results: Path | None) -> Record:
    """A part as the package makes it now, or as it is in a results folder."""
    if part in DECODED:
        return Record.of_decoded(DECODED[part]())
    if results is not None:
        return Record.of_results(results)
    with workflow(part) as folder:
        return Record.of_results(folder)


@contextmanager
def workflow(part: str) -> Iterator[Path]:
    """Run the workflow in a folder of its own; its results folder, which is deleted at the end."""
    target, config, results = TARGETS[part]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "project")
        folder.mkdir()
        for link, there in (("adafuse", ROOT), ("config", ROOT), ("../shared", ROOT.parent)):
            (folder / link).symlink_to(there / Path(link).name)  # configurations have such paths
        done = Workplace(folder).snakemake(target, configfile=config)
        assert done.returncode == 0, done.stdout + done.stderr
        yield folder / results
