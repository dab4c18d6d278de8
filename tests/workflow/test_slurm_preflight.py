"""The job of docs/hpc.md that checks a node of a Slurm cluster, submitted as it is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import toy_path
from tests.support.checkout import ROOT
from tests.support.slurm_cluster import NODES, needed_cluster

pytestmark = pytest.mark.soak
CONFIG = """\
models: {{llama: {{path: {path}}}}}
benchmarks: {{qa: {{use: {root}/config/benchmarks/toy_qa.yaml}}}}
runs: {{llama: {{method: single, models: [llama]}}}}
decode: {{device: {device}, gpu: {gpu}}}
"""


def test_the_documented_job_checks_its_node_and_ends_with_the_status_of_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = re.findall(r"^(sbatch .*preflight.*)$", (ROOT / "docs/hpc.md").read_text(), re.M)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    told = []
    with needed_cluster():
        # The cluster's GPU is no GPU: Slurm gives it to the job, and torch does not find it.
        for device, gpu in (("cpu", 0), ("auto", 1)):
            text = CONFIG.format(path=toy_path("llama"), root=ROOT, device=device, gpu=gpu)
            Path("my.yaml").write_text(text)
            done = subprocess.run(job, shell=True, capture_output=True, text=True)
            told.append((done.returncode, Path("preflight.log").read_text()))
    (passed, without), (failed, with_one) = told
    assert (passed, failed) == (0, 1), told
    assert re.search(rf"ok    node       ({'|'.join(NODES)}), Slurm job \d+, ", without)
    assert "; no job asks for one" in without
    assert "0 of the 1 that a job asks for; ask for more, or lower decode.gpu" in with_one
