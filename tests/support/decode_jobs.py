"""Decode jobs in processes of their own that need not import torch first: they are forked.

A signal hits the process that decodes. Run as a script it reads a job a line,
[log, folder, arguments], and forks.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
DONE = re.compile(r" of \d+: (\S+) \(")
"""A row in the log of a decode job, where it stands once its line of the journal is flushed."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ended, and how many seconds it took."""

    status: int
    seconds: float


class DecodeJobs:
    """Runs `adafuse step ...`, one at a time."""

    def __init__(self, server: subprocess.Popen[str]) -> None:
        self._server = server

    @classmethod
    @contextmanager
    def started(cls) -> Iterator[Self]:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.decode_jobs"],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            yield cls(server)
        finally:
            server.kill()
            server.wait()

    def run(
        self, arguments: list[str], folder: Path, log: Path, end: tuple[int, float] | None = None
    ) -> Ended:
        """Run a job to its end, or send it a signal after some seconds: `end`."""
        log.write_text("")
        self._server.stdin.write(json.dumps([str(log), str(folder), arguments]) + "\n")
        self._server.stdin.flush()
        process = int(self._server.stdout.readline())
        started = time.monotonic()
        if end is not None:
            time.sleep(end[1])
            os.kill(process, end[0])  # if it has ended, it waits to be asked for its status
        self._server.stdin.write("\n")
        self._server.stdin.flush()
        status = int(self._server.stdout.readline())
        return Ended(status, time.monotonic() - started)


def _serve() -> None:
    import transformers.models.llama.modeling_llama
    import transformers.models.mistral.modeling_mistral  # noqa: F401

    import adafuse.ensemble  # noqa: F401
    from adafuse.cli.errors import run
    from adafuse.cli.main import app

    for line in sys.stdin:
        log, folder, arguments = json.loads(line)
        process = os.fork()
        if process == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            output = os.open(log, os.O_WRONLY)
            for stream in (1, 2):
                os.dup2(output, stream)
            os.chdir(folder)
            sys.argv[1:] = arguments
            status = run(app)
            sys.stderr.flush()
            os._exit(status)
        _answer(process)
        sys.stdin.readline()
        _answer(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))


def _answer(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _serve()
