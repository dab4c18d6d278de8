"""`python` and `adafuse` in processes that need not import torch or Snakemake first: forked ones.

The two commands lie in a folder; each hands its arguments, folder, environment and files to a
server, which forks. A signal to a command does not reach the process that does the work, and
libraries read their environment variables when the server starts.

Run as a script it is the server, on a socket beside the commands.
"""

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parents[2]
COMMANDS = ("python", "adafuse")
CLIENT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
socket.send_fds(server, [b"!"], [0, 1, 2])
server.sendall(json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode() + b"\\n")
sys.exit(int(server.recv(8) or 1))
"""


@contextmanager
def commands(folder: Path) -> Iterator[Path]:
    """Return the path of a `python` that runs a module or script; `adafuse` is beside it."""
    address = folder / "socket"
    for name in COMMANDS:
        (folder / name).write_text(CLIENT.format(python=sys.executable, address=str(address)))
        (folder / name).chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked", str(folder)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        while not address.exists():
            assert server.poll() is None
            time.sleep(0.05)
        yield folder / COMMANDS[0]
    finally:
        server.kill()
        server.wait()


def _serve(folder: Path) -> NoReturn:
    import snakemake.cli  # noqa: F401
    import transformers.models.llama.modeling_llama
    import transformers.models.mistral.modeling_mistral  # noqa: F401

    import adafuse.cli.main
    import adafuse.ensemble
    import adafuse.workflow.decode  # noqa: F401

    sys.executable = str(folder / COMMANDS[0])  # beside which Snakemake finds `adafuse`
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(folder / "bound"))
    server.listen()
    (folder / "bound").rename(folder / "socket")  # now it takes connections
    while True:
        client, _ = server.accept()
        if os.fork() == 0:
            server.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _answer(client)
        client.close()


def _answer(client: socket.socket) -> NoReturn:
    """Run what a command was given, and tell it the exit status."""
    _, files, _, _ = socket.recv_fds(client, 1, 3)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.argv, folder, environment = json.loads(client.makefile().readline())
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    status = _status()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    client.sendall(str(status).encode())
    os._exit(0)


def _status() -> int:
    try:
        if Path(sys.argv[0]).name == "adafuse":
            runpy.run_module("adafuse", run_name="__main__")
        elif sys.argv[1] == "-m":
            del sys.argv[:2]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            del sys.argv[0]
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as error:
        if isinstance(error.code, str):
            sys.stderr.write(f"{error.code}\n")
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return 0  # after any other exception the command gets no status, which is 1


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
