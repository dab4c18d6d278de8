"""Where a server is to run: starts it on a free port, says when it is ready, and ends it.

This file is run by itself, and imports nothing but the standard library. It prints the URL of the
server once that answers at /health, and a sentence if the server fails. It ends the server at the
end of its own input: when the process that started it closes that, or dies.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException

PORT = "{port}"
"""What stands for the port in the command of a server."""
LOCAL, EVERYWHERE = "127.0.0.1", "0.0.0.0"
LONGEST_START = 3600.0
"""Seconds in which a server has to be ready."""
GRACE = 20.0
"""Seconds that a server has to end by itself."""
_PAUSE = 0.2
_DEATH = 1  # PR_SET_PDEATHSIG


def main(address: str, command: list[str]) -> int:
    """Run a server, which listens at an address; return 0 if it was ended, 1 if it failed."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: the workflow ends this itself
    port = _free_port(address)
    words = [str(port) if word == PORT else word for word in command]
    try:
        server = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True, preexec_fn=_die_too
        )
    except OSError as error:
        return _fail(f"{words[0]!r} cannot be started ({error.strerror}); check serve.command")
    try:
        threading.Thread(target=_wait_for_the_end, args=(over,), daemon=True).start()
        if (failure := _failure(server, port, over)) is not None:
            return _fail(failure)
        name = LOCAL if address == LOCAL else socket.gethostname()
        _say(f"http://{name}:{port}")
        while server.poll() is None:
            if over.wait(_PAUSE):
                return 0
        return _fail(f"the server ended with exit status {server.returncode}")
    finally:
        _end(server)


def _wait_for_the_end(over: threading.Event) -> None:
    while os.read(0, 1):
        continue
    over.set()


def _free_port(address: str) -> int:
    with socket.socket() as free:
        free.bind((address, 0))
        return int(free.getsockname()[1])


def _failure(server: "subprocess.Popen[bytes]", port: int, over: threading.Event) -> str | None:
    """Wait until a server is ready; return why it will not be."""
    for _ in range(int(LONGEST_START / _PAUSE)):
        if server.poll() is not None:
            return f"the server ended with exit status {server.returncode} before it was ready"
        if _is_healthy(port):
            return None
        if over.wait(_PAUSE):
            return "the workflow ended before the server was ready"
    return f"the server was not ready within {LONGEST_START:.0f} seconds"


def _is_healthy(port: int) -> bool:
    with suppress(OSError, HTTPException), closing(HTTPConnection(LOCAL, port, 10)) as connection:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    return False


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _fail(reason: str) -> int:
    _say(reason)
    return 1


def _end(server: "subprocess.Popen[bytes]") -> None:
    """End a server and all processes that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(server.pid, number)
        with suppress(subprocess.TimeoutExpired):
            server.wait(GRACE)


def _die_too() -> None:
    """Have Linux end the server if this process is killed."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DEATH, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
