"""Servers that the workflow starts: from the first request of /health to the last process."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from adafuse.benchmarks.shards import PreparedRow
from adafuse.config.reading import parse_config
from adafuse.errors import UserError
from adafuse.servers.http import ENDED
from adafuse.storage.journal import only_writer
from adafuse.workflow import host, serving
from adafuse.workflow.digest import row_digests
from adafuse.workflow.jobs import decode_job
from adafuse.workflow.layout import ResultsLayout
from adafuse.workflow.plan import Plan
from adafuse.workflow.prefetch import hub_models
from adafuse.workflow.serving import (
    EXECUTOR,
    Launch,
    Started,
    executor,
    launch,
    on_servers,
    start,
)
from adafuse.workflow.snakemake import srun
from adafuse.workflow.status import ServerStatus, server_statuses, shard_status
from adafuse.workflow.steps import Job
from tests.support.configuration import values
from tests.support.slurm_cluster import wait_for
from tests.support.vllm_stand_in import involved, program, servers

__all__ = ["values"]


@dataclass
class Place:
    """A server that answers at /health, its file, and a workflow that is there until it is not."""

    command: Path
    file: Path
    workflow: Path

    def start(self, *words: str, prefix: tuple[str, ...] = ()) -> str:
        command = words or (
            str(self.command),
            *["serve", "a", "--host", "127.0.0.1", "--port"],
            host.PORT,
        )
        start(Launch(command, os.environ, prefix=prefix), self.file, self.workflow.exists)
        url = Started.read(self.file).url
        assert url is not None and httpx.get(f"{url}/health").status_code == 200
        return url

    def ends(self) -> None:
        wait_for(lambda: not involved(self.command), "no process is left")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(serving, "_PAUSE", 0.05)
    workflow = tmp_path / "workflow"
    workflow.touch()
    made = Place(program(tmp_path, "health"), tmp_path / "servers/m.json", workflow)
    yield made
    for process in involved(made.command):
        process.kill()


def test_a_server_runs_until_its_file_is_deleted(place: Place) -> None:
    place.start()
    assert len(servers(place.command)) == 1
    place.file.unlink()
    place.ends()
    assert not place.file.exists()
    lock = place.file.with_name("m.json.lock")
    wait_for(lambda: not lock.exists(), "the keeper has ended after the server")


def test_a_server_ends_with_the_workflow_and_takes_its_file_along(place: Place) -> None:
    place.start()
    place.workflow.unlink()
    place.ends()
    wait_for(lambda: not place.file.exists(), "the file is gone")


def test_a_server_ends_with_a_keeper_that_is_killed(place: Place) -> None:
    place.start()
    (server,) = servers(place.command)
    keeper = server.parent().parent()
    assert keeper is not None
    keeper.kill()
    place.ends()


def test_a_server_that_is_killed_is_started_again(place: Place) -> None:
    url = place.start()
    servers(place.command)[0].kill()
    wait_for(lambda: Started.read(place.file).url not in (url, None), "another one is there")
    assert len(servers(place.command)) == 1
    place.file.unlink()
    place.ends()


def test_a_server_that_ends_too_often_is_not_started_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "RESTARTS", 0)
    place.start()
    servers(place.command)[0].kill()
    place.ends()
    wait_for(lambda: Started.read(place.file).url is None, "that is said")
    assert Started.read(place.file).ended == "the server ended with exit status -9"


@pytest.mark.parametrize(
    ("words", "prefix", "sentence"),
    [
        (("false",), (), "the server ended with exit status 1 before it was ready"),
        (("/not/there",), (), "'/not/there' cannot be started (No such file or directory)"),
        (("true",), ("false",), "false ended with exit status 1"),
    ],
)
def test_a_server_that_does_not_become_ready_is_an_error(
    place: Place, words: tuple[str, ...], prefix: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(UserError) as failed:
        place.start(*words, prefix=prefix)
    assert sentence in str(failed.value)
    assert not involved(place.command)


def test_a_workflow_that_ends_while_a_server_starts_leaves_nothing(place: Place) -> None:
    script = "from pathlib import Path; import time; time.sleep(600)"
    place.workflow.unlink()
    with pytest.raises(UserError):
        place.start("python3", "-c", script, str(place.command))
    place.ends()


Values = dict[str, Any]
ROW = PreparedRow(id="r", prompt="p", question="q", answers=("a",), shard=0)


@pytest.fixture
def served(values: Values) -> Values:
    """A configuration in which the workflow starts the servers of two models."""
    for name, gpus in (("left", 1), ("right", 2)):
        serve = {"engine": "vllm", "command": "/envs/vllm", "gpus": gpus, "args": ["--x"]}
        values["models"][name]["serve"] = serve
    return values


def test_vllm_finds_the_processor_and_nothing_of_this_environment(
    served: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/ours")
    file = tmp_path / "servers" / "left.json"
    made = launch(parse_config(served), "left", file, None)
    assert made.environment["PYTHONPATH"] == str(tmp_path / "servers")
    assert "class Spans(" in (tmp_path / "servers" / "vllm_processor.py").read_text()
    assert made.command[:2] == ["/envs/vllm", "serve"] and made.command[-1] == "--x"
    assert made.address == "127.0.0.1"


def test_servers_on_this_machine_have_gpus_of_their_own(
    served: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cards(model: str) -> str:
        made = launch(parse_config(served), model, tmp_path / "x.json", None)
        return made.environment["CUDA_VISIBLE_DEVICES"]

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert (cards("left"), cards("right")) == ("0", "1,2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    assert (cards("left"), cards("right")) == ("4", "5,6")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    with pytest.raises(UserError, match="need 3 GPUs, but CUDA_VISIBLE_DEVICES is '4,5'"):
        cards("right")


def test_on_a_cluster_srun_starts_a_server_with_the_resources_of_its_job(
    served: Values, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_CONF", "/etc/other.conf")
    plan = Plan(parse_config(served))
    asked = plan.server_resources("right")._asdict() | {"slurm_partition": "gpu"}
    words = srun("right", asked).split()
    assert words[:4] == ["srun", "--nodes=1", "--ntasks=1", "--job-name=server-right"]
    assert {"--partition=gpu", "--gpus=2", "--time=1440"} < set(words)
    made = launch(plan.config, "right", tmp_path / "x.json", words)
    assert made.prefix == words and made.address == "0.0.0.0"
    assert "SLURM_JOB_ID" not in made.environment
    assert made.environment["SLURM_CONF"] == "/etc/other.conf"


def test_other_executors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(EXECUTOR, raising=False)
    assert executor() == "local"
    monkeypatch.setenv(EXECUTOR, "kubernetes")
    with pytest.raises(UserError, match="cannot start servers with the executor 'kubernetes'"):
        executor()


def test_rows_depend_on_the_engine_and_its_arguments_and_not_on_where_it_runs(
    served: Values,
) -> None:
    def digest(**changes: object) -> str:
        served["models"]["right"]["serve"] |= changes
        return Plan(parse_config(served)).digest("qa", "both", 0)

    first = digest()
    assert digest(command="/elsewhere", gpus=4) == first
    assert digest(args=["--x", "--dtype", "float32"]) != first


def test_decode_jobs_wait_for_the_servers_that_they_need(served: Values) -> None:
    served["runs"]["left_here"] = {"method": "single", "models": ["left"], "served": False}
    plan = Plan(parse_config(served))

    def reads(run: str) -> set[str]:
        reads = plan.reads(Job.of("decode", "qa", run, 0))
        return {each.values[0] for each in reads if each.step == "server"}

    assert reads("both") == {"left", "right"}
    assert reads("left") == {"left"}
    assert reads("far") == reads("left_here") == set()


def ready(config: Values) -> dict[str, Path]:
    """Let both servers be there."""
    layout = ResultsLayout(config["results"])
    files = {name: layout.server(name) for name in ("left", "right")}
    for name, file in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        Started(url=f"http://{name}:1").write(file)
    return files


def test_a_decode_job_gets_the_urls_of_its_servers(served: Values) -> None:
    ready(served)
    config = parse_config(served)
    planned = decode_job(config, "qa", "both")
    with on_servers(config, planned) as job:
        assert [model.server for model in job.models] == ["http://left:1", "http://right:1"]
        assert row_digests(job, [ROW]) == row_digests(planned, [ROW])


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        (Started(ended="the server ended with exit status 9"), "ended with exit status 9"),
        (Started(), "ended and was started again"),
        (Started(url="http://elsewhere:1"), "ended and was started again"),
    ],
)
def test_a_job_that_fails_with_its_server_says_so(
    served: Values, now: Started, sentence: str
) -> None:
    file, config = ready(served)["right"], parse_config(served)

    def decode() -> None:
        with on_servers(config, decode_job(config, "qa", "both")):
            assert not ENDED["http://right:1"]()
            now.write(file)
            assert ENDED["http://right:1"]() and not ENDED["http://left:1"]()
            raise UserError("the server http://right:1 failed 2 times")

    with pytest.raises(UserError) as failed:
        decode()
    assert f"the server of model 'right' {sentence} (its log: " in str(failed.value)
    assert str(failed.value).endswith("run again: finished rows are kept")


def test_a_job_that_fails_for_another_reason_says_that(served: Values) -> None:
    ready(served)
    config = parse_config(served)
    with (
        pytest.raises(UserError, match="another reason"),
        on_servers(config, decode_job(config, "qa", "both")),
    ):
        raise UserError("another reason")


def test_a_job_without_its_server_is_an_error(served: Values) -> None:
    ready(served)["left"].unlink()
    config = parse_config(served)
    with (
        pytest.raises(UserError, match="the server of model 'left' does not run"),
        on_servers(config, decode_job(config, "qa", "both")),
    ):
        pass


def test_weights_of_models_on_hubs_are_fetched_for_servers_to_be_started(served: Values) -> None:
    served["models"]["hub"] |= {"serve": {"engine": "vllm", "command": "vllm"}}
    assert [(model.path, model.server) for model in hub_models(parse_config(served))][-1] == (
        "org/name",
        None,
    )


def test_the_status_shows_servers(served: Values) -> None:
    del served["runs"]["far"]
    plan = Plan(parse_config(served))
    log = str(plan.layout.log("server", "left"))

    def status(jobs: dict[str, dict[str, str]]) -> list[ServerStatus]:
        cells = [(*cell, shard) for cell in plan.all_cells() for shard in (0, 1)]
        return server_statuses(plan, jobs, [shard_status(plan, {}, *cell) for cell in cells])

    waits = ServerStatus("right", "waiting")
    assert status({}) == [ServerStatus("left", "waiting"), waits]
    file = plan.layout.server("left")
    failed = {"error": "rule server failed", "log": log, "rule": "server"}
    assert status({str(file): failed})[0].detail == "rule server failed"
    file.parent.mkdir(parents=True)
    with only_writer(file):
        assert status({})[0] == ServerStatus("left", "starting", log=log)
        Started(url="http://a:1").write(file)
        assert status({})[0] == ServerStatus("left", "running", "http://a:1", log=log)
    assert status({})[0].state == "stopped"
    Started(ended="the server ended").write(file)
    assert status({})[0] == ServerStatus("left", "failed", detail="the server ended", log=log)
