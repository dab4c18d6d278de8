"""Running the command line as a user does: with pipes, or in a terminal."""

import os
import pty
import subprocess
import sys
import termios
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(**more):
    """The environment of a user with a terminal of 80 columns."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80", "TERM": "xterm", **more}


def adafuse(*arguments, cwd=ROOT, given="", **more):
    """Run `adafuse` with pipes; `given` is its standard input."""
    return subprocess.run(
        [sys.executable, "-m", "adafuse", *map(str, arguments)],
        cwd=cwd,
        input=given,
        capture_output=True,
        text=True,
        env=environment(**more),
    )


@dataclass
class Shown:
    """What a command wrote to a terminal, and to the other stream."""

    status: int
    terminal: str
    piped: str


def in_terminal(*arguments, stream="stdout", cwd=ROOT, stdin_too=False):
    """Run `adafuse` with one of its output streams (and stdin, if wanted) at a terminal."""
    parent, child = pty.openpty()
    termios.tcsetwinsize(child, (24, 80))
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    streams[stream] = child
    if stdin_too:
        streams["stdin"] = child
    process = subprocess.Popen(
        [sys.executable, "-m", "adafuse", *map(str, arguments)],
        cwd=cwd,
        env=environment(),
        **streams,
    )
    os.close(child)
    shown = b""
    while part := _read(parent):
        shown += part
    piped = process.stderr if stream == "stdout" else process.stdout
    told = piped.read().decode()
    return Shown(process.wait(), shown.decode().replace("\r\n", "\n"), told)


def _read(handle):
    try:
        return os.read(handle, 1 << 16)
    except OSError:  # the other end was closed
        return b""
