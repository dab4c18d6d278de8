"""A server in this process, and one that runs by itself."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

pytest.importorskip("fastapi", reason="adafuse[serve] is not installed")
from fastapi.testclient import TestClient

from adafuse.serve.app import Service, Serving, make_app
from tests.conftest import toy_path

ROOT = Path(__file__).parents[2]


def in_a_thread(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Call what runs an event loop of its own: Playwright's runs in the tests' thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *given, **named).result()


DEFAULTS = {
    "name": "adafuse", "method": "adafuse", "options": {}, "max_new_tokens": 16, "batch_size": 4,
    "max_waiting": 64, "longest": 512, "seconds": 60.0, "body": 1 << 16,
}  # fmt: skip


PROMPT = "Question: Which city is the capital of Rustan?\nAnswer:"
MESSAGES = [{"role": "user", "content": "Which city is the capital of Rustan?"}]


def completed(client: TestClient, **body: Any) -> Any:
    done = client.post("/v1/completions", json={"prompt": PROMPT, **body})
    assert done.status_code == 200, done.text
    return done.json()


def streamed(client: TestClient, path: str, **body: Any) -> list[Any]:
    with client.stream("POST", path, json={"stream": True, **body}) as answer:
        assert answer.status_code == 200
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


@pytest.fixture
def serving(pair: Any) -> Callable[..., Any]:
    """Return what makes a client of a server in this process."""

    @contextmanager
    def make(**changes: Any) -> Iterator[TestClient]:
        service = Service(changes.pop("ensemble", pair), Serving(**{**DEFAULTS, **changes}))
        with TestClient(make_app(service)) as client:
            client.service = service
            yield client

    return make


@pytest.fixture
def client(serving: Callable[..., Any]) -> Iterator[TestClient]:
    with serving() as client:
        yield client


@dataclass
class Server:
    """A server in a process of its own."""

    process: "subprocess.Popen[bytes]"
    url: str

    def gauge(self, name: str) -> float:
        """Return what the metrics say of a name; 0 if nothing yet."""
        with urlopen(f"{self.url}/metrics") as answer:
            told = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines())
        return float(told.get(name, 0))

    def stop(self) -> int:
        """Ask it to finish, and return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


TOYS = (toy_path("mistral"), toy_path("llama"))


@contextmanager
def started(
    folder: Path, *options: str, models: Sequence[str] = TOYS, **environment: str
) -> Iterator[Server]:
    """Start `adafuse serve` on a free port; what it says lies in a file of the folder."""
    named = [word for model in models for word in ("--model", model)]
    command = [sys.executable, "-m", "adafuse", "serve", *named, "--device", "cpu", "--port", "0"]
    log = folder / "server.log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [*command, *options],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            stderr=stderr,
        )
    try:
        while (found := re.search(r"answers at (http://\S+)/v1\n", log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        yield Server(process, found[1])
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="session")
def endless(random_pair: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose models write on and on."""
    models = [model.name for model in random_pair.models]
    with started(tmp_path_factory.mktemp("endless"), models=models) as running:
        yield running
