"""The workflow with servers that it starts: its tables, and that no process is left of it."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from adafuse.workflow.serving import Started
from tests.support.slurm_cluster import wait_for
from tests.support.small_workflow import SmallWorkflow, configuration
from tests.support.vllm_stand_in import involved, program, servers

pytestmark = pytest.mark.soak
SHARDS = 2
PATIENCE = 240.0
MODELS = ("mistral", "llama")


class Served:
    """A small workflow whose two models are on servers."""

    def __init__(self, folder: Path) -> None:
        self.workflow = SmallWorkflow.made(folder, SHARDS)
        self.vllm = program(folder)
        self.configure()

    def configure(self, **serve: object) -> None:
        values = configuration(SHARDS)
        for model in values["models"].values():
            model["serve"] = {"engine": "vllm", "command": str(self.vllm), "gpus": 0} | serve
        (self.workflow.folder / "config.yaml").write_text(yaml.safe_dump(values, sort_keys=False))

    def file(self, model: str) -> Path:
        return self.workflow.results / f"servers/{model}.json"

    def wait_for_rows(self) -> None:
        """Wait until both servers run, and a job that uses both has decoded some rows."""
        some = self.workflow.results.glob
        wait_for(lambda: bool([*some("traces/qa/adafuse/*.journal")]), "it decodes", PATIENCE)
        wait_for(lambda: "1 of" in self.logs(), "a row is done", PATIENCE)

    def logs(self) -> str:
        logs = self.workflow.results.glob("logs/decode/qa/adafuse/*.log")
        return "".join(log.read_text() for log in logs)

    def ends(self) -> None:
        wait_for(lambda: not involved(self.vllm), "no process is left", 60)
        locks = self.workflow.results.glob
        wait_for(lambda: not [*locks("servers/*.lock")], "no lock is left", 60)

    def decoded(self) -> int:
        """Return how many jobs have decoded with both models."""
        return len([*self.workflow.results.glob("logs/decode/qa/adafuse/*.log")])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    for process in involved(made.vllm):
        process.kill()


def test_the_texts_are_those_of_models_that_are_loaded_and_finished_ones_start_no_server(
    served: Served, tmp_path_factory: pytest.TempPathFactory
) -> None:
    status, said = served.workflow.run()
    assert status == 0, said
    served.ends()
    loaded = SmallWorkflow.made(tmp_path_factory.mktemp("loaded"), SHARDS)
    assert loaded.run()[0] == 0
    assert texts(served.workflow) == texts(loaded)

    copy = served.workflow.folder / "elsewhere"
    copy.mkdir()
    served.vllm = Path(shutil.copy(served.vllm, copy))
    served.configure()
    assert "Nothing to be done" in served.workflow.run()[1]

    for name in ("adafuse.parquet", "adafuse/1.parquet"):
        (served.workflow.results / "traces/qa" / name).unlink()
    status, said = served.workflow.run()
    assert status == 0, said
    assert (said.count("rule server:"), said.count("rule decode:")) == (2, 1)
    served.ends()


def texts(workflow: SmallWorkflow) -> list[list[tuple[str, str]]]:
    return [[(row["id"], row["text"]) for row in rows] for rows in workflow.traces()]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_servers_end_with_snakemake(served: Served, sent: signal.Signals) -> None:
    running = served.workflow.start()
    served.wait_for_rows()
    os.kill(running.pid, sent)
    assert running.wait(PATIENCE) != 0
    served.ends()


def test_a_server_that_dies_ends_its_jobs_and_the_next_start_does_the_rest(served: Served) -> None:
    running = served.workflow.start("--keep-going")
    served.wait_for_rows()
    before = {model: Started.read(served.file(model)).url for model in MODELS}
    for server in servers(served.vllm):
        if any(word.endswith("llama") for word in server.cmdline()):
            server.kill()
    assert running.wait(PATIENCE) == 1
    served.ends()
    sentence = "error: the server of model 'llama' ended and was started again"
    logs = [*served.workflow.results.glob("logs/decode/qa/*/*.log")]
    assert sum(sentence in log.read_text() for log in logs) in (1, 2)
    assert before["llama"] is not None
    kept = served.logs().count("1 of")
    assert kept
    served.workflow.unlock()
    status, said = served.workflow.run()
    assert status == 0, said
    served.ends()
