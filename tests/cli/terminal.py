"""Running the command line as a user does, with pipes or in a terminal, without a process each."""

import io
import os
import pty
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from adafuse.cli.main import main

ROOT = Path(__file__).parents[2]


def environment(**more):
    """The environment of a user with a terminal of 80 columns."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "TERM": "xterm", **more}


@dataclass
class Done:
    """How a command ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


def adafuse(*arguments, cwd=ROOT, given="", encoding="utf-8", **more):
    """Run `adafuse` with pipes; `given` is its standard input."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding) for _ in range(2))
    stdin = io.TextIOWrapper(io.BytesIO(given.encode()), "utf-8")
    status = run(*arguments, stdin=stdin, stdout=out, stderr=err, cwd=cwd, **more)
    return Done(status, *(stream.buffer.getvalue().decode(encoding) for stream in (out, err)))


def adafuse_process(*arguments, cwd=ROOT, given="", **more):
    """Run `adafuse` as a process of its own, which takes seconds."""
    return subprocess.run(
        [sys.executable, "-m", "adafuse", *map(str, arguments)],
        cwd=cwd,
        input=given,
        capture_output=True,
        text=True,
        env=environment(**more),
    )


def run(*arguments, cwd=ROOT, stdin=None, stdout=None, stderr=None, **more):
    """Run `adafuse` on these streams in this process; return its exit status."""
    streams = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["adafuse", *map(str, arguments)])
        for name, stream in streams.items():
            patch.setattr(sys, name, io.StringIO() if stream is None else stream)
        for name, value in environment(**more).items():
            patch.setenv(name, value)
        try:
            main()
        except SystemExit as end:
            status = end.code
        for stream in filter(None, (stdout, stderr)):
            stream.flush()
    return status or 0


def read_by(reader: Callable[[int], object], *arguments):
    """Run `adafuse` with stdout into a pipe that `reader` reads; return status and stderr."""
    read, write = os.pipe()
    thread = threading.Thread(target=reader, args=(read,))
    thread.start()
    stderr = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with os.fdopen(write, "w", encoding="utf-8") as stdout:
        status = run(*arguments, stdout=stdout, stderr=stderr)
    thread.join()
    return status, stderr.buffer.getvalue().decode()


@dataclass
class Shown:
    """What a command wrote to a terminal, and to the other stream."""

    status: int
    terminal: str
    piped: str


def in_terminal(*arguments, stream="stdout", cwd=ROOT, stdin_too=False):
    """Run `adafuse` with one of its output streams (and stdin, if asked) at a terminal."""
    parent, child = pty.openpty()
    termios.tcsetwinsize(child, (24, 80))
    shown = []
    reader = threading.Thread(target=_read_all, args=(parent, shown))
    reader.start()
    piped = io.TextIOWrapper(io.BytesIO(), "utf-8")
    other = "stderr" if stream == "stdout" else "stdout"
    with os.fdopen(child, "r+b", buffering=0) as terminal:
        streams = {stream: io.TextIOWrapper(terminal, "utf-8", write_through=True), other: piped}
        if stdin_too:
            streams["stdin"] = streams[stream]
        status = run(*arguments, cwd=cwd, **streams)
    reader.join()
    told = piped.buffer.getvalue().decode()
    return Shown(status, b"".join(shown).decode().replace("\r\n", "\n"), told)


def _read_all(handle, parts):
    try:
        while part := os.read(handle, 1 << 16):
            parts.append(part)
    except OSError:  # the other end was closed
        os.close(handle)
