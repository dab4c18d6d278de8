"""How long a connection may be without a request, and an answer may take."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="adafuse[serve] is not installed")
import uvicorn

from adafuse.serve import guards
from adafuse.serve.app import Service, Serving, make_app

from .conftest import DEFAULTS

OPEN = 0.15
SLOW = 6 * OPEN


async def slow(scope: Any, receive: Any, send: Any) -> None:
    """Answer after some time; as a stream, with nothing between its beginning and its end."""
    if scope["type"] != "http":
        return
    streamed = scope["path"] == "/stream"
    length = [] if streamed else [(b"content-length", b"8")]
    start = {"type": "http.response.start", "status": 200, "headers": length}
    if streamed:
        await send(start)
        await send({"type": "http.response.body", "body": b"one\n", "more_body": True})
    await asyncio.sleep(0 if scope["path"] == "/fast" else SLOW)
    if not streamed:
        await send(start)
        await send({"type": "http.response.body", "body": b"one\n", "more_body": True})
    await send({"type": "http.response.body", "body": b"two\n"})


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A connection on which nothing was sent, to a server whose answers take long."""
    monkeypatch.setattr(guards, "OPEN_SECONDS", OPEN)
    with connection_to(slow) as client:
        yield client


@contextmanager
def connection_to(app: Any) -> Iterator[socket.socket]:
    """Run a server in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))
    settings: dict[str, Any] = {"http": guards.Connection, "ws": "none", "log_level": "warning"}
    server = uvicorn.Server(uvicorn.Config(app, **settings))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        with socket.create_connection(listener.getsockname(), timeout=20) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


def ask(client: socket.socket, path: str) -> None:
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())


def read_until(client: socket.socket, end: bytes) -> bytes:
    """Return what comes up to an end, or until the connection is closed."""
    found = b""
    while end not in found and (piece := client.recv(1 << 12)):
        found += piece
    return found


@pytest.mark.parametrize(("path", "end"), [("/whole", b"two\n"), ("/stream", b"0\r\n\r\n")])
def test_an_answer_that_takes_long_is_not_cut_off(
    connected: socket.socket, path: str, end: bytes
) -> None:
    for _ in range(2):  # also the second one of a connection
        start = time.monotonic()
        ask(connected, path)
        answer = read_until(connected, end)
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"one\n" in answer
        assert b"two\n" in answer
        assert time.monotonic() - start > 4 * OPEN


@pytest.mark.parametrize("path", ["/fast", "/whole"])
def test_a_connection_without_another_request_is_closed(
    connected: socket.socket, path: str
) -> None:
    ask(connected, path)
    assert b"two\n" in read_until(connected, b"two\n")
    start = time.monotonic()
    assert connected.recv(1) == b""
    assert OPEN / 2 < time.monotonic() - start < 30 * OPEN


@pytest.mark.parametrize("begun", [b"", b"GET /fast HTTP/1.1\r\nHost: lo"])
def test_a_connection_on_which_no_request_comes_whole_is_closed(
    connected: socket.socket, begun: bytes
) -> None:
    start = time.monotonic()
    connected.sendall(begun)
    assert connected.recv(1) == b""
    assert time.monotonic() - start < 30 * OPEN


BODY = json.dumps({"prompt": "Who?", "max_tokens": 2}).encode()


@pytest.mark.parametrize(
    ("length", "status"),
    [
        (len(BODY), 200), (len(BODY) - 1, 400), (0, 400), (len(BODY) + 1, 408), (1 << 30, 413),
        ("-1", 400), ("x", 400), ("", 400), (f"{len(BODY)}, 3", 400),
    ],
)  # fmt: skip
def test_a_length_that_is_not_that_of_the_body_is_refused(
    pair: Any, monkeypatch: pytest.MonkeyPatch, length: object, status: int
) -> None:
    monkeypatch.setattr(guards, "OPEN_SECONDS", 2 * OPEN)
    with connection_to(make_app(Service(pair, Serving(**DEFAULTS)))) as client:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}"
        client.sendall(head.encode() + b"\r\n\r\n" + BODY)
        assert client.recv(12) == f"HTTP/1.1 {status}".encode()
        read_until(client, b"nothing ends but the connection")
