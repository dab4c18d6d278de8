"""JSON over HTTP, asked again where a server fails."""

import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.request import getproxies, proxy_bypass

import httpx
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_attempt,
    stop_after_delay,
    stop_when_event_set,
)
from tenacity.wait import wait_exponential, wait_random

from adafuse.errors import ExampleError, UserError

T = TypeVar("T")

FIRST_ATTEMPTS = 3
"""How often a server is asked at first: its URL may be wrong."""
ATTEMPTS = 9
"""How often a request is sent before its example fails: for some two minutes."""
LONGEST_PAUSE = 40.0
"""Seconds between two attempts, at most."""
LONGEST = 900.0
"""Seconds after which a request is not sent again."""
PAUSES = wait_exponential(0.5, max=LONGEST_PAUSE) + wait_random(0, 1)
ENDED: dict[str, Callable[[], bool]] = {}
"""By URL, where that can be known: whether a server has ended, so that no attempt is of use."""
_ASKED_WRONGLY = (400, 413, 422)
"""With these statuses a server refuses what it is asked; with others, such as 404, whoever asks."""
_HERE = ("127.0.0.1", "localhost", "::1")
"""No proxy is used for servers on this machine."""
_PATIENCE = httpx.Timeout(600, connect=10)  # seconds; a server that is full answers late
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=None)


class Fault(Exception):  # noqa: N818 - of the server
    """An answer that cannot be used, while the next one to the same request may be right."""


class Http:
    """A server at `url`; `key` names the environment variable that holds its API key.

    `failures` tell of requests that failed because of the server, not of what was asked.

    As a server that was started anew may be another one, `recheck` is called, and may raise, before
    an answer is used that came after a new connection or a failure of the server.
    """

    def __init__(self, url: str, key: str | None = None) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        headers = {"Authorization": f"Bearer {_api_key(key)}"} if key is not None else {}
        self._proxy = ""
        try:
            host = httpx.URL(self.url).host
            self._client = httpx.Client(
                base_url=self.url,
                headers=headers,
                timeout=_PATIENCE,
                limits=_LIMITS,
                trust_env=host not in _HERE,
                verify=httpx.create_ssl_context(),  # with SSL_CERT_FILE of the environment
            )
            self._proxy = _proxy(self._client.base_url)
        except httpx.InvalidURL:
            url = ""
        except (ImportError, ValueError) as error:
            raise UserError(
                f"the server {self.url} cannot be asked through the proxy of the environment"
                f" ({error}); unset all_proxy, or correct it"
            ) from error
        if not url.startswith(("http://", "https://")):
            raise UserError(
                f"server {self.url!r} is not a URL; write one such as http://node7:8000"
            )
        if self._client.base_url.userinfo:
            raise UserError(
                f"server {self._client.base_url.copy_with(userinfo=b'')} has a password in its URL,"
                " which would be shown; put it into an environment variable and name that as"
                " server_key"
            )
        self.attempts = FIRST_ATTEMPTS
        self.failures: list[str] = []
        self.recheck: Callable[[], object] = lambda: None
        self._connected = self._checked = 0.0
        self._check = threading.Lock()
        self._here = threading.local()
        self._closed = threading.Event()
        self._connections = weakref.WeakSet[socket.socket]()

    def close(self) -> None:
        """End all attempts and connections, also where an answer is awaited."""
        self._closed.set()
        for connection in list(self._connections):
            _cut(connection)
        self._client.close()

    def get(self, path: str) -> Any:
        """Return the JSON at a path."""
        return self._ask("GET", path, None, lambda answer: answer)

    def post(self, path: str, body: Mapping[str, Any], read: Callable[[Any], T]) -> T:
        """Return what `read` makes of the answer; it raises `Fault` at one to be asked for again.

        Raises:
            ExampleError: the server refuses, or fails at every attempt.
        """
        return self._ask("POST", path, body, read)

    def _ask(
        self, verb: str, path: str, body: Mapping[str, Any] | None, read: Callable[[Any], T]
    ) -> T:
        enough = (
            stop_after_attempt(self.attempts)
            | stop_after_delay(LONGEST)
            | stop_when_event_set(self._closed)
        )
        attempts = Retrying(
            stop=lambda state: enough(state) or self._has_ended(),
            wait=_pause,
            sleep=sleep_using_event(self._closed),
            retry=retry_if_exception_type((httpx.HTTPError, Fault)),
            reraise=True,
        )
        try:
            return attempts(lambda: read(self._answer(verb, path, body)))
        except (httpx.HTTPError, Fault) as error:
            said = error.args[0] if error.args and error.args[0] else type(error).__name__
            times = attempts.statistics["attempt_number"]
            self.failures.append(
                f"the server {self.url} failed {times} times ({said}){self._proxy}"
            )
            raise ExampleError(f"{self.failures[-1]}; see its log") from error

    def _has_ended(self) -> bool:
        return self.url in ENDED and ENDED[self.url]()

    def _answer(self, verb: str, path: str, body: Mapping[str, Any] | None) -> Any:
        noted = {"trace": self._note}
        response = self._client.request(verb, path, json=body, extensions=noted)
        status = response.status_code
        if status >= 500:  # a proxy keeps its connection to here while the server starts anew
            self._connected = time.monotonic()
        if status == 429 or status >= 500:
            raise Fault(f"HTTP status {status}", response.headers.get("Retry-After"))
        try:
            answer = response.json()
        except ValueError:
            if status < 300:
                raise Fault("an answer that is not JSON") from None
            answer = response.reason_phrase
        if status >= 300:
            elsewhere = f"it is at {response.next_request.url}" if response.next_request else ""
            refused = f"the server {self.url} refuses ({status}): {elsewhere or _message(answer)}"
            refused += self._proxy
            if status not in _ASKED_WRONGLY:
                self.failures.append(refused)
            raise ExampleError(refused)
        if self._checked < self._connected and not getattr(self._here, "checking", False):
            self._check_again()
        return answer

    def _note(self, event: str, about: Mapping[str, Any]) -> None:
        """Note a new connection; one that comes too late is cut."""
        if event == "connection.connect_tcp.complete":
            self._connected = time.monotonic()
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._connections.add(connection := about["return_value"].get_extra_info("socket"))
            if self._closed.is_set():
                _cut(connection)

    def _check_again(self) -> None:
        """Check the server, unless another thread did meanwhile."""
        with self._check:
            if self._checked < self._connected:
                self._here.checking, start = True, time.monotonic()
                try:
                    self.recheck()
                    self._checked = start
                finally:
                    self._here.checking = False


def _proxy(url: httpx.URL) -> str:
    """Return the part of a message that names a server's proxy; nothing if it has none."""
    names = [name for name in (url.scheme, "all") if name in getproxies()]
    if url.host in _HERE or proxy_bypass(url.host) or not names:
        return ""
    way = f", asked through the proxy that {names[0]}_proxy names"
    return f"{way} (to ask it directly, add {url.host} to no_proxy)"


def _cut(connection: socket.socket) -> None:
    """End a connection; closing it would leave who reads from it waiting."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _api_key(name: str) -> str:
    key = os.environ.get(name, "").strip()
    if not key:
        raise UserError(f"there is no environment variable {name} with an API key; export it")
    if not (key.isascii() and key.isprintable()):  # httpx would show it in an exception
        raise UserError(f"the API key in the environment variable {name} has odd characters")
    return key


def _pause(state: RetryCallState) -> float:
    """Return the seconds to wait: those that the server names, or more each time."""
    error = state.outcome.exception() if state.outcome else None
    named: str | None = error.args[1] if isinstance(error, Fault) and len(error.args) > 1 else None
    return min(float(named), LONGEST_PAUSE) if named and named.isdecimal() else PAUSES(state)


def _message(answer: Any) -> str:
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    return str(error.get("message", error) if isinstance(error, dict) else error)[:300]
