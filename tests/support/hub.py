"""A stand-in for the hub, over HTTP: models in folders, data sets without files, closed ones."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .hub_cache import COMMIT

TOKEN = "hf_open_sesame"


@dataclass
class Hub:
    """Repositories by `models/ID` or `datasets/ID`; a closed one needs `TOKEN`."""

    repositories: dict[str, Path | None]
    closed: frozenset[str] = frozenset()
    url: str = ""
    asked: list[str] = field(default_factory=list)

    def environment(self, cache: Path) -> dict[str, str]:
        """Return the variables of a process that uses it, and a cache."""
        return {"HF_ENDPOINT": self.url, "HF_HUB_OFFLINE": "0", "HF_HOME": str(cache)}


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        hub = self.hub
        place = urlsplit(self.path).path.removeprefix("/")
        hub.asked.append(place)
        told = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if place == "api/whoami-v2":
            return self._send(200 if told else 401, b"{}", {})
        if not place:
            return self._send(200, b"", {})
        api = place.startswith("api/")
        kind, *words = place.split("/")[1:] if api else ["models", *place.split("/")]
        name, rest = "/".join(words[:2]), words[2:]
        repository = f"{kind}/{name}"
        if repository not in hub.repositories:
            return self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
        if repository in hub.closed and not told and rest[:1] in (["auth-check"], ["resolve"]):
            return self._send(403 if told else 401, b"", {"X-Error-Code": "GatedRepo"})
        folder = hub.repositories[repository]
        if not api:
            return self._file(Path(str(folder), *rest[2:]))
        if rest[:1] == ["tree"]:
            return self._json([_entry(file) for file in sorted(Path(str(folder)).iterdir())])
        if rest == ["auth-check"]:
            return self._json({})
        files = [file for file in Path(str(folder)).rglob("*") if file.is_file()]
        siblings = [
            {"rfilename": str(file.relative_to(str(folder))), "size": file.stat().st_size}
            for file in files
        ]
        gated = "manual" if repository in hub.closed else False
        found = {"id": name, "sha": COMMIT, "siblings": siblings, "gated": gated}
        return self._json({**found, "tags": [], "private": False})

    def do_HEAD(self) -> None:
        self.do_GET()

    def _json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _file(self, file: Path) -> None:
        if not file.is_file():
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        etag = f'"{_entry(file)["oid"]}"'
        self._send(200, file.read_bytes(), {"ETag": etag, "X-Repo-Commit": COMMIT})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def standing_hub(
    repositories: dict[str, Path | None], closed: frozenset[str] = frozenset()
) -> Iterator[Hub]:
    """Run one."""
    hub = Hub(repositories, closed)
    handler = type("Handler", (_Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


def _entry(file: Path) -> dict[str, Any]:
    content = file.read_bytes()
    oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    return {"type": "file", "path": file.name, "size": len(content), "oid": oid}
