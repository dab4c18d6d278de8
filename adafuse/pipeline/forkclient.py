"""Starting a fork server, and handing a job to it."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import MutableMapping, Sequence
from pathlib import Path

from adafuse.pipeline.forkserver import ACCEPTED, LENGTH, STATUS, STREAMS, Request

VARIABLE = "ADAFUSE_FORKSERVER"
"""Environment variable that names the socket of a running server."""
KILLED = 137
"""The exit status of a job that was sent SIGKILL, as a shell tells it."""


def start(models: Sequence[str], environment: MutableMapping[str, str], log: Path) -> None:
    """Start a server that lives as long as this process, and name it in `environment`.

    Args:
        models: model folders whose code the server loads in advance.
        environment: that of the jobs.
        log: takes what the server has to say, which is nothing unless it fails.
    """
    # A folder of its own, because whoever can connect can run commands in this user's name.
    path = Path(tempfile.mkdtemp(prefix="adafuse-")) / "socket"
    environment[VARIABLE] = str(path)
    # A session of its own: Ctrl-C is for the jobs, the server ends when its parent has.
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        subprocess.Popen(
            [sys.executable, "-m", "adafuse.pipeline.forkserver", str(path), *models],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def delegate(arguments: Sequence[str]) -> int | None:
    """Have the server that the environment names run a command; return its exit status.

    None means that no server took the command, which is still to be run. When this process ends
    before the command has, the server's child ends too.
    """
    environment = dict(os.environ)
    path = environment.pop(VARIABLE, None)
    if path is None:
        return None
    request = Request(list(arguments), str(Path.cwd()), environment)
    with socket.socket(socket.AF_UNIX) as connection:
        if not _accepted(connection, path, request):
            return None
        answer = connection.recv(STATUS.size, socket.MSG_WAITALL)
    # Without an answer the child was killed, for instance because memory ran out.
    return int(STATUS.unpack(answer)[0]) if len(answer) == STATUS.size else KILLED


def _accepted(connection: socket.socket, path: str, request: Request) -> bool:
    """Send a request; False if the server is gone, or ends before it comes to this job."""
    body = request.encoded()
    try:
        connection.connect(path)
        socket.send_fds(connection, [LENGTH.pack(len(body))], list(range(STREAMS)))
        connection.sendall(body)
        return connection.recv(1) == ACCEPTED
    except OSError:
        return False
