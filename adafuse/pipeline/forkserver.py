"""A server that forks a ready process per job, so that many short jobs import torch once.

Importing torch and transformers takes seconds, which is more than a shard needs on a small model.
The server imports them, waits on a Unix socket, and forks for every job; the child takes over the
job's arguments, folder, environment and standard streams and runs the command line as if it had
been started itself. The server never touches CUDA, which would not survive a fork.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

LENGTH = struct.Struct("!Q")
STATUS = struct.Struct("!i")
ACCEPTED = b"+"
STREAMS = 3

Command = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Request:
    """What a job is started with."""

    arguments: list[str]
    folder: str
    environment: dict[str, str]

    def encoded(self) -> bytes:
        """Return the request as bytes for the socket; file names may hold any byte."""
        parts = [self.arguments, self.folder, self.environment]
        return json.dumps(parts).encode()

    @classmethod
    def decoded(cls, body: bytes) -> Self:
        """Return the request that `encoded` made these bytes from."""
        return cls(*json.loads(body))


def listen(path: Path) -> socket.socket:
    """Return a listening socket; jobs may come to wait at it before the server is ready."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(64)
    listener.settimeout(0.5)
    return listener


def next_job(listener: socket.socket, parent: int) -> socket.socket | None:
    """Fork a child for every job, and return in each child with the connection of its job.

    In the server, return None once `parent`, which started this process, has gone.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    while os.getppid() == parent:
        with contextlib.suppress(TimeoutError):
            connection, _ = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                return connection
            connection.close()
    return None


def run_job(connection: socket.socket, command: Command) -> None:
    """Take over a job, run it, and send its exit status.

    `command` finds the job's arguments in `sys.argv`. If it raises, the status is 1; a job that is
    killed sends none.
    """
    connection.setblocking(True)
    _become(*_receive(connection))
    connection.sendall(ACCEPTED)
    threading.Thread(target=_die_with, args=(connection,), daemon=True).start()
    try:
        status = command()
    except Exception:  # noqa: BLE001 - the border of a job: its client ends with the status
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    connection.sendall(STATUS.pack(status))


def _receive(connection: socket.socket) -> tuple[Request, list[int]]:
    head, streams, _, _ = socket.recv_fds(connection, LENGTH.size, STREAMS, socket.MSG_WAITALL)
    (length,) = LENGTH.unpack(head)
    return Request.decoded(connection.recv(length, socket.MSG_WAITALL)), streams


def _become(request: Request, streams: list[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.argv[1:] = request.arguments


def _die_with(connection: socket.socket) -> None:
    """End this process when the client's end of the socket closes: its job was stopped."""
    if not connection.recv(1):
        os._exit(1)


def main() -> None:
    """Serve on the socket named by the first argument; the others are models to be ready for."""
    # A process with several threads must not fork, and torch would start a pool of them.
    os.environ["OMP_NUM_THREADS"] = "1"
    # Asking whether there is a GPU must not initialise CUDA either.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    parent = os.getppid()
    path, models = Path(sys.argv[1]), sys.argv[2:]
    with listen(path) as listener:
        from adafuse.pipeline.preload import preload, run_command_line

        preload(models)
        connection = next_job(listener, parent)
    if connection is None:
        shutil.rmtree(path.parent, ignore_errors=True)
    else:
        run_job(connection, run_command_line)


if __name__ == "__main__":
    main()
