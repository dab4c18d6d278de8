"""A server that speaks the part of vLLM's API that is used, and can be told to misbehave.

It answers from a network in this process, with the reference engine's distributions.
"""

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import httpx
import torch
from tenacity import RetryCallState

from adafuse.ensemble import Ensemble
from adafuse.models.language_model import LoadedModel
from adafuse.servers import http
from tests.conftest import toy_path

FAULTS = (
    *("slow", "busy", "broken", "half", "cut", "not json", "not a number", "infinite", "least"),
    *("missing", "fewer", "empty"),
)
"""How an answer may be wrong; the next one to the same request is right."""
TOP = 20
"""vLLM's default of `--max-logprobs`."""
STARTING = 0.5
"""Seconds that a server has between two attempts to connect to it."""
LEAST = -9999.0
"""What vLLM writes instead of an infinite log-probability."""


def spans():
    """The logits processor that is shipped, over a stand-in for vLLM's base class."""
    base = ModuleType("vllm.v1.sample.logits_processor")
    base.AdapterLogitsProcessor = object
    with mock.patch.dict(sys.modules, {base.__name__: base}):
        from adafuse.servers.vllm_processor import Spans
    return Spans()


class Distributions:
    """The raw logits of a model after any ids; each is computed once."""

    def __init__(self, model: LoadedModel) -> None:
        self.network = model.network
        self.rows = model.rows
        self.tokenizer = model.tokenizer
        self._known: dict[tuple[int, ...], torch.Tensor] = {}
        self._lock = threading.Lock()

    def after(self, ids: tuple[int, ...], count: int = 1) -> list[torch.Tensor]:
        """Return the logits after each of the last `count` prefixes of some ids."""
        prefixes = [ids[: len(ids) - n] for n in reversed(range(count))]
        with self._lock, torch.inference_mode():
            if any(prefix not in self._known for prefix in prefixes):
                logits = self.network(torch.tensor([ids]), use_cache=False, logits_to_keep=count)
                self._known.update(zip(prefixes, logits.logits[0].float(), strict=True))
            return [self._known[prefix] for prefix in prefixes]


class RefusedError(Exception):
    """An HTTP status and what is said with it."""


class StandIn:
    """A server at `url` that has one model, `name`, and writes spans if it has the `processor`.

    Attributes:
        asked: the bodies of all completions that were asked for.
        keys: the API keys that came with requests.
        retry: the seconds after which to come back that it names where it is busy.
        fault: says of the body of a request how it is answered wrongly, if it is.
    """

    def __init__(
        self,
        model: Distributions,
        *,
        name: str = "toy",
        context: int = 512,
        processor: bool = True,
        key: str | None = None,
        owner: str = "vllm",
    ) -> None:
        self.model, self.name, self.context, self.key, self.owner = model, name, context, key, owner
        self.processor = processor
        self.asked: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.fault: Callable[[dict[str, Any]], str | None] = lambda body: None
        self.port = 0
        self.address = "127.0.0.1"
        self.retry = "0"
        self._spans = spans()
        self._seen: set[tuple[int, ...]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen, at the same port as before."""
        self._server = _Listener((self.address, self.port), _Handler)
        self._server.stand_in = self
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Die: nobody listens, and all connections are cut."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._server.connections):
            _cut(connection)

    def answer(self, path: str, body: dict[str, Any], key: str | None) -> Any:
        """Return what is said to a request.

        Raises:
            RefusedError: it is not allowed.
        """
        self.keys.add(key)
        if self.key is not None and path.startswith("/v1") and key != f"Bearer {self.key}":
            raise RefusedError(401, "Unauthorized")
        match path:
            case "/health":
                return {}
            case "/version":
                return {"version": "0.32.0"}
            case "/v1/models":
                about = {"owned_by": self.owner, "max_model_len": self.context}
                return {"object": "list", "data": [{"id": self.name, **about}]}
            case "/tokenize":
                ids = self.model.tokenizer.encode(body["prompt"], add_special_tokens=False)
                return {"count": len(ids), "tokens": ids}
            case "/v1/completions":
                self.asked.append(body)
                self._check(body)
                return self._completion(body)
        raise RefusedError(404, "Not Found")

    def _check(self, body: dict[str, Any]) -> None:
        """Refuse what vLLM refuses."""
        ids, most = body["prompt"], body["max_tokens"]
        if body["model"] != self.name:
            raise RefusedError(404, f"The model `{body['model']}` does not exist.")
        if most < 1:
            raise RefusedError(400, f"max_tokens must be at least 1, got {most}.")
        if len(ids) + most > self.context:
            raise RefusedError(
                400, f"This model's maximum context length is {self.context} tokens."
            )
        if body["logprobs"] > TOP:
            raise RefusedError(400, f"Requested sample logprobs of {body['logprobs']}, max {TOP}.")
        named = (*ids, *body.get("allowed_token_ids", ()), *body.get("stop_token_ids", ()))
        if odd := [index for index in named if not 0 <= index < self.model.rows]:
            raise RefusedError(400, f"Token id {odd[0]} is out of vocabulary")
        if body.get("allowed_token_ids") == []:
            raise RefusedError(400, "allowed_token_ids is not None and empty!")

    def _completion(self, body: dict[str, Any]) -> dict[str, Any]:
        ids, stop = tuple(body["prompt"]), set(body.get("stop_token_ids", ()))
        extra = body.get("vllm_xargs") if self.processor else None
        asked = SimpleNamespace(extra_args=extra, stop_token_ids=body.get("stop_token_ids"))
        choose = self._spans.new_req_logits_processor(asked) or (lambda written, logits: logits)
        forced = [] if extra is None else extra.get("forced", [])
        if all(index < self.model.rows for index in forced):
            self.model.after(ids + tuple(forced), 1 + len(forced))  # all in one forward
        written: list[int] = []
        rows: list[torch.Tensor] = []
        while len(written) < body["max_tokens"] and not stop & set(written):
            free = self.model.tokenizer.decode(written[body.get("min_tokens", 0) :])
            if any(string in free for string in body.get("stop", ())):
                break
            (logits,) = self.model.after(ids + tuple(written))
            chosen = choose(written, logits)
            if (allowed := body.get("allowed_token_ids")) is not None:
                chosen = torch.full_like(chosen, -torch.inf).index_put(
                    (torch.tensor(allowed),), chosen[allowed]
                )
            rows.append(logits.log_softmax(0))
            written.append(int(chosen.argmax()))
        return {
            "choices": [{"logprobs": _logprobs(rows, written, body["logprobs"])}],
            "usage": {
                "prompt_tokens": len(ids),
                "completion_tokens": len(written),
                "prompt_tokens_details": {"cached_tokens": self._cached(ids)},
            },
        }

    def _cached(self, ids: tuple[int, ...], block: int = 16) -> int:
        """Return how many ids are in whole blocks that were read before."""
        blocks = [ids[:end] for end in range(block, len(ids), block)]
        cached = sum(each in self._seen for each in blocks)
        self._seen.update(blocks)
        return cached * block


def _logprobs(rows: list[torch.Tensor], written: list[int], top: int) -> dict[str, Any]:
    """Return log-probabilities as vLLM does: those of the id that was written come first."""
    tops = []
    for row, index in zip(rows, written, strict=True):
        values, ids = row.topk(top)
        named = {index: float(row[index]), **dict(zip(ids.tolist(), values.tolist(), strict=True))}
        tops.append({f"token_id:{n}": max(value, LEAST) for n, value in named.items()})
    tokens = [f"token_id:{index}" for index in written]
    chosen = [each[token] for each, token in zip(tops, tokens, strict=True)]
    return {"tokens": tokens, "token_logprobs": chosen, "top_logprobs": tops}


def _spoil(answer: dict[str, Any], fault: str) -> None:
    """Make an answer wrong in its content."""
    logprobs = answer["choices"][0]["logprobs"]
    last, token = logprobs["top_logprobs"][-1], logprobs["tokens"][-1]
    values = {"not a number": float("nan"), "infinite": float("-inf"), "least": LEAST}
    if fault in values:
        last[next(reversed(last))] = values[fault]
    elif fault == "above 1":
        last.update(dict.fromkeys(last, 0.0))
    elif fault == "near 0":
        last.update({name: value - 40 for name, value in last.items()})
    elif fault == "missing":
        del last[token]
    elif fault == "fewer":
        for column in logprobs.values():
            column.pop()
    elif fault == "empty":
        answer["choices"][0]["logprobs"] = None


class _Listener(ThreadingHTTPServer):
    daemon_threads, request_queue_size, stand_in = True, 128, None

    def __init__(self, *arguments: Any) -> None:
        self.connections: set[socket.socket] = set()
        super().__init__(*arguments)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that were cut."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        super().finish()

    def do_GET(self) -> None:
        self._say(200, self._of(None))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = self.server.stand_in.fault(body)
        match fault:
            case "slow":
                time.sleep(0.02)
            case "busy":
                return self._say(
                    429, {"error": {"message": "busy"}}, retry=self.server.stand_in.retry
                )
            case "broken":
                return self._say(500, {"error": {"message": "broken"}})
            case "cut":
                return _cut(self.connection)
        self._say(200, self._of(body, fault), fault=fault)

    def _of(self, body: Any, fault: str | None = None) -> Any:
        key = self.headers["Authorization"]
        try:
            answer = self.server.stand_in.answer(self.path, body or {}, key)
        except RefusedError as refusal:
            status, message = refusal.args
            return status, {"error": {"message": message}}
        if fault is not None:
            _spoil(answer, fault)
        return answer

    def _say(self, status: int, answer: Any, fault: str | None = None, retry: str = "") -> None:
        status, answer = answer if isinstance(answer, tuple) else (status, answer)
        body = b"<html>gone</html>" if fault == "not json" else json.dumps(answer).encode()
        lines = [f"HTTP/1.1 {status} -", f"Content-Length: {len(body)}"]
        lines += [f"Retry-After: {retry}"] if retry else []
        head = "\r\n".join([*lines, "", ""]).encode()
        self.wfile.write(head + (body[: len(body) // 2] if fault == "half" else body))
        if fault == "half":
            _cut(self.connection)

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def standing(model: Distributions, **settings: Any) -> Iterator[StandIn]:
    """A server for as long as it is needed."""
    server = StandIn(model, **settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def ensemble(*servers: StandIn, models: Sequence[str] = ("mistral", "llama"), **settings: Any):
    """Toy models of which each is on a server, as `Ensemble.from_pretrained` connects them."""
    urls = [server.url for server in servers]
    return Ensemble.from_pretrained([*map(toy_path, models)], server=urls, **settings)


@contextmanager
def impatient(pause: float = 0.0) -> Iterator[None]:
    """Pauses of so many seconds between attempts; a server that starts has a moment."""

    def pauses(state: RetryCallState) -> float:
        refused = isinstance(state.outcome.exception(), httpx.ConnectError)
        return max(pause, STARTING) if refused else pause

    with mock.patch.multiple(http, PAUSES=pauses, LONGEST_PAUSE=pause):
        yield
