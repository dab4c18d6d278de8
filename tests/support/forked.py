"""`python` and `adafuse` in processes that need not import torch or Snakemake first: forked ones.

The two commands lie in a folder; each hands its arguments, folder, environment and files to a
server, which forks. SIGINT, SIGTERM and SIGKILL to a command reach the process that does the work,
and what that has started. Libraries read their environment variables when the server starts.

Run as a script it is the server, on a socket beside the commands.
"""

import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

ROOT = Path(__file__).parents[2]
COMMANDS = ("python", "adafuse")
CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
socket.send_fds(server, [b"!"], [0, 1, 2])
server.sendall(json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode() + b"\\n")
answers = server.makefile()
process = int(answers.readline())
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.killpg(process, number))
sys.exit(int(answers.readline() or 1))
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
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(folder / "bound"))
    server.listen()
    (folder / "bound").rename(folder / "socket")  # now it takes connections
    events = select.poll()
    events.register(server, select.POLLIN)
    running: dict[int, _Running] = {}
    while True:
        for file, _ in events.poll():
            if file == server.fileno():
                started = _started(server.accept()[0], [server, *running])
                running[started.client.fileno()] = running[started.process_file] = started
                events.register(started.client, 0)  # until it is closed
                events.register(started.process_file, select.POLLIN)  # until the process ends
            elif file in running:
                ended = running[file]
                for each in (ended.client.fileno(), ended.process_file):
                    events.unregister(each)
                    del running[each]
                ended.end(killed=file != ended.process_file)


class _Running(NamedTuple):
    """A command's connection, its process, and the file by which the process is waited for."""

    client: socket.socket
    process: int
    process_file: int

    def end(self, killed: bool) -> None:
        """Kill the process if its command was killed; otherwise tell the command its status."""
        if killed:
            os.killpg(self.process, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        with suppress(OSError):
            self.client.sendall(b"%d\n" % (status if status >= 0 else 128 - status))
        self.client.close()
        os.close(self.process_file)


def _started(client: socket.socket, others: list[socket.socket | int]) -> _Running:
    """Fork a process, which leads a group of its own."""
    process = os.fork()
    with suppress(OSError):
        os.setpgid(process, process)
    if process == 0:
        for other in others:
            os.close(other if isinstance(other, int) else other.detach())
        _work(client)
    with suppress(OSError):  # it may have been killed
        client.sendall(b"%d\n" % process)
    return _Running(client, process, os.pidfd_open(process))


def _work(client: socket.socket) -> NoReturn:
    """Run what a command was given."""
    _, files, _, _ = socket.recv_fds(client, 1, 3)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.argv, folder, environment = json.loads(client.makefile().readline())
    client.close()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        status = _status()
    except KeyboardInterrupt:
        status = 130
    except Exception:  # noqa: BLE001 - as an interpreter does
        traceback.print_exc()
        status = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


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
    return 0


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
