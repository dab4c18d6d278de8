"""What protects the server: slow connections, foreign web pages, keys, and what errors tell."""

import asyncio
import hmac
import re
from collections.abc import Collection
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from adafuse.serve.protocol import RequestError

OPEN_SECONDS = 10.0
"""A request must come whole in so many seconds, and a connection without one is closed."""
MOST_CONNECTIONS = 1000
"""More connections at a time are refused (503)."""
MOST_LETTERS = 1000
"""An error is shortened to about so many characters: it may repeat what a client sent."""


class Connection(H11Protocol):
    """A connection that is closed if no request begins, also when the server stops.

    uvicorn itself limits the time after an answer only, and waits for what is half sent.
    """

    def connection_made(self, transport: Any) -> None:
        """Begin to look, every `OPEN_SECONDS`, whether there is a request."""
        super().connection_made(transport)
        self.loop.call_later(OPEN_SECONDS, self._look, None)

    def _look(self, before: object) -> None:
        idle = self.cycle is None or self.cycle.response_complete
        state = self.cycle if idle else object()  # an answer may take as long as it needs
        if self.transport.is_closing():
            return
        if state is before:
            self.transport.close()
        else:
            self.loop.call_later(OPEN_SECONDS, self._look, state)

    def shutdown(self) -> None:
        """Finish the request that is being answered, but not one that has not come whole."""
        if self.cycle is not None and self.cycle.more_body:
            self.transport.close()
        else:
            super().shutdown()


async def read_body(request: Request, most: int) -> bytes:
    """Return the body of a request.

    Raises:
        RequestError: it has more than `most` bytes, does not come in time, or is not in Unicode.
    """
    body, length = bytearray(), request.headers.get("content-length", "")
    too_large = RequestError(f"the request is larger than {most} bytes; send less", 413)
    if length.isdecimal() and int(length) > most:
        raise too_large
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise too_large
    except TimeoutError:
        raise RequestError(
            f"the request has not come whole in {OPEN_SECONDS:g} s; send it at once", 408
        ) from None
    _check_charset(request.headers.get("content-type", ""), body)
    return bytes(body)


_UNICODE = re.compile(r"utf-?(8|16|32)([-_]?[bl]e)?|(us-)?ascii")
_ONE_BYTE = re.compile(r"(iso-?|latin-?|windows-?|cp)[\d-]+")


def _check_charset(content_type: str, body: bytearray) -> None:
    """Refuse JSON whose characters are others than a reader of UTF-8 takes them for."""
    match = re.search(r"charset\s*=\s*[\"']?([^\s\"';]*)", content_type.lower())
    name = match[1] if match else "utf-8"
    if not (_UNICODE.fullmatch(name) or (body.isascii() and _ONE_BYTE.fullmatch(name))):
        raise RequestError(f"the request is in the charset {name!r}; send UTF-8", 415)


def check_key(request: Request, key: str) -> None:
    """Refuse a request without the key of the server."""
    scheme, *given = request.headers.get("authorization", "").split(None, 1) or [""]
    same = hmac.compare_digest("".join(given).strip().encode("latin-1"), key.encode())
    if scheme.lower() != "bearer" or not same:
        raise RequestError("the API key is missing or wrong", 401, "invalid_api_key")


def check_local(request: Request, hosts: Collection[str]) -> None:
    """Refuse what a web page of elsewhere has the browser of this machine send.

    Its name may have become an address of this machine's own (DNS rebinding), so both the host that
    is asked and the origin must be this machine by name.
    """
    for header in ("host", "origin"):
        for value in request.headers.getlist(header):
            name = _host_name(value if header == "origin" else f"//{value}")
            if name not in hosts and not _is_loopback(name):
                raise RequestError(
                    f"{header} {value!r} is not this machine; ask http://127.0.0.1, or start the"
                    " server with a key (--api-key-file)",
                    403,
                )


def _host_name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def shortened(text: str) -> str:
    """Return the beginning and the end of a sentence that is too long to be read."""
    if len(text) <= MOST_LETTERS:
        return text
    half = MOST_LETTERS // 2
    return f"{text[:half]} ... {text[-half:]}"
