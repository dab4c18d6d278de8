"""`adafuse generate` with models on servers, as a user runs it."""

import json
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from adafuse.cli.generate import check_places
from adafuse.cli.main import app
from adafuse.errors import UserError
from adafuse.models.spec import ModelSpec
from tests.cli.terminal import adafuse, environment
from tests.conftest import toy_path
from tests.support.stand_in import standing

PROMPTS = [
    f"Question: Who has {n} {things}?\nAnswer:" for n in (3, 7) for things in ("dogs", "cars")
]
MODEL = ["--model", toy_path("llama"), "--max-new-tokens", "4", "--method", "single"]
INTO = ["--prompts", "in.jsonl", "--out", "out.parquet"]


@pytest.fixture
def folder(tmp_path):
    rows = [json.dumps({"id": str(n), "prompt": prompt}) for n, prompt in enumerate(PROMPTS)]
    (tmp_path / "in.jsonl").write_text("\n".join(rows))
    return tmp_path


def generate(folder, server, *more):
    return adafuse("generate", *MODEL, *INTO, "--server", server.url, *more, cwd=folder)


def metadata(folder):
    return json.loads(pq.read_schema(folder / "out.parquet").metadata[b"adafuse"])


def broken_at(pair, *numbers):
    """A fault at the prompts with these numbers."""
    starts = [pair.models[1].prompt_ids(PROMPTS[number]) for number in numbers]

    def fault(body):
        return "broken" if any(body["prompt"][: len(start)] == start for start in starts) else None

    return fault


@pytest.mark.usefixtures("no_pauses")
def test_an_unfinished_file_goes_on_at_a_server_that_moved_and_at_no_other_model(
    folder, pair, distributions
):
    with standing(distributions[1]) as server:
        server.fault = broken_at(pair, 2)
        done = generate(folder, server)
        assert done.returncode == 1, done.stderr
        assert "1 of them failed" in done.stdout
        first = pq.read_table(folder / "out.parquet").to_pylist()
    (served,) = metadata(folder)["settings"]["served"]
    assert served["engine"] == "vllm"
    assert len(served["likely"]) > 4
    with standing(distributions[1], context=300) as other:
        done = generate(folder, other, "--resume")
    assert done.returncode == 2
    assert "has 4 prompts of other models than the servers have now; start those" in done.stderr
    with standing(distributions[1]) as moved:
        done = generate(folder, moved, "--resume")
    assert done.returncode == 0, done.stderr
    assert "3 of 4 prompts were done before" in done.stderr
    rows = pq.read_table(folder / "out.parquet").to_pylist()
    assert [rows[n] for n in (0, 1, 3)] == [first[n] for n in (0, 1, 3)]
    assert rows[2]["error"] is None


@pytest.mark.soak
def test_ctrl_c_does_not_wait_for_a_server_that_is_away(folder, pair, distributions):
    with standing(distributions[1]) as server:
        server.fault = broken_at(pair, *range(len(PROMPTS)))
        command = [sys.executable, "-m", "adafuse", "generate", *MODEL, *INTO]
        with subprocess.Popen(
            [*command, "--server", server.url], cwd=folder, env=environment()
        ) as process:
            while not (folder / "out.journal.lock").exists():
                assert process.poll() is None
                time.sleep(0.05)
            time.sleep(1)
            start = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
    assert time.monotonic() - start < 30


@pytest.mark.parametrize(("name", "value"), [("device", "cuda:0"), ("dtype", "bfloat16")])
def test_where_to_load_is_refused_where_nothing_is_loaded(name, value):
    there, here = ({"path": path, "server": url} for path, url in (("a", "http://x"), ("b", None)))
    served, loaded = (ModelSpec(**each, **{name: value}) for each in (there, here))
    with pytest.raises(UserError, match=f"^--{name} {value} changes nothing, because all models"):
        check_places([served, served], "adafuse", {})
    check_places([served, loaded], "adafuse", {})
    check_places([ModelSpec(**there)], "single", {})
    check_places([served, served], "llm_blender", {"ranker": "org/ranker", "rank_only": True})


@pytest.mark.parametrize("command", ["generate", "advise", "fit"])
def test_commands_say_so_before_they_ask_a_server(command, folder, monkeypatch):
    monkeypatch.chdir(folder)
    rows = ["--rows", "in.jsonl", "--scorer", "nq"]
    given = ["--prompt", "x"] if command == "generate" else rows
    given += ["--out", "gate.json"] if command == "fit" else []
    url = ["--server", "http://127.0.0.1:1", "--server", "http://127.0.0.1:2"]
    models = ["--model", toy_path("llama"), "--model", toy_path("mistral"), *url]
    done = CliRunner().invoke(app, [command, *models, *given, "--device", "cpu"])
    assert str(done.exception).startswith("--device cpu changes nothing")
