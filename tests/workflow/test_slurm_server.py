"""The job of docs/serve.md that serves models on a node of a Slurm cluster, submitted as it is."""

import os
import re
import sys
from pathlib import Path

import httpx
import pytest

from tests.conftest import toy_path
from tests.support.checkout import PATIENCE, ROOT
from tests.support.slurm_cluster import command, needed_cluster, wait_for

pytestmark = pytest.mark.soak
PROMPT = "Question: Which city is the capital of Rustan?\nAnswer:"


def test_the_documented_job_answers_with_its_key_and_ends_when_it_is_told(tmp_path, monkeypatch):
    (job,) = re.findall(
        r"^#!/bin/bash\n.*?(?=^```)", (ROOT / "docs/serve.md").read_text(), re.M | re.S
    )
    for name, model in (("MODEL_A", "mistral"), ("MODEL_B", "llama")):
        job = job.replace(name, toy_path(model))
    (tmp_path / "serve.sh").write_text(job)
    (tmp_path / ".adafuse-key").write_text("secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    with needed_cluster() as cluster:
        number = int(command("sbatch", "--parsable", "serve.sh"))
        log = tmp_path / f"serve-{number}.log"
        url = f"http://127.0.0.1:{20000 + number % 20000}"
        wait_for(
            lambda: "answers at" in log.read_text() if log.exists() else False, "it is up", PATIENCE
        )
        wait_for(lambda: healthy(url), "it is healthy", PATIENCE)
        asked = {"prompt": PROMPT, "stop": ["\n"]}
        assert httpx.post(f"{url}/v1/completions", json=asked).status_code == 401
        key = {"Authorization": "Bearer secret"}
        answer = httpx.post(f"{url}/v1/completions", json=asked, headers=key, timeout=60).json()
        assert answer["choices"][0]["text"] == " Mount Skofell"
        assert cluster.jobs("RUNNING").keys() == {number}
        command("scancel", "--signal=TERM", "--batch", str(number))
        wait_for(lambda: not cluster.jobs("RUNNING"), "it has ended", PATIENCE)
    said = log.read_text()
    assert f"{answer['id']}-0 done method=adafuse" in said and os.uname().nodename in said


def healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").status_code == 200
    except httpx.TransportError:
        return False
