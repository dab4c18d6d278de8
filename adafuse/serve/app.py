"""The HTTP side of the server: OpenAI's completions and chat completions, health and metrics."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from adafuse.decoding.run import Batch, Run
from adafuse.decoding.words import Settings
from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.methods import resolve
from adafuse.models.language_model import LanguageModel
from adafuse.options import parse
from adafuse.records.result import Chat, Prompt, Result, letters
from adafuse.serve.decoder import BusyError, Decoder, Job
from adafuse.serve.forms import REASONS, ChatForm, Form, Json, TextForm
from adafuse.serve.guards import check_key, check_local, read_body, shortened
from adafuse.serve.metrics import metrics
from adafuse.serve.models import PLAIN, PLAIN_STOP, served_models
from adafuse.serve.requests import Asked, RequestError, read_request
from adafuse.serve.traces import Traces
from adafuse.storage.files import without_folders
from adafuse.version import __version__

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Serving:
    """What a server offers: `name` is that of the ensemble, the others are limits and defaults.

    `longest` is the most ids of a prompt with its text, `seconds` the time of a request, `body` the
    bytes of one. Without a key, only requests to and from `hosts` and this machine are answered
    (None: all). `templates` are chat templates, one per model (None: its own, or `PLAIN`).
    """

    name: str
    method: str
    options: dict[str, Any]
    max_new_tokens: int
    batch_size: int | Literal["auto"]
    max_waiting: int
    longest: int
    seconds: float
    body: int
    api_key: str | None = None
    traces: Path | None = None
    trace_mib: int = 1024
    hosts: tuple[str, ...] | None = None
    ignore_sampling: bool = False
    templates: tuple[str | None, ...] = ()


METHODS_KEPT = 8
"""So many methods with their options stay prepared."""
LETTERS = 16
"""A prompt with more characters than this for each token of room is refused before it is read."""
MOST_TOP = 64
"""So many of the likeliest next ids may a method of a client read (branching, top_k, width)."""


class Service:
    """An ensemble, the thread that decodes with it, and what is kept of requests."""

    def __init__(self, ensemble: Ensemble, serving: Serving) -> None:
        self.serving = serving
        models = served_models(ensemble.models, serving.templates)
        self.stops_plainly = any(m.tokenizer.chat_template == PLAIN for m in models)
        self.ensemble = Ensemble(models, ensemble.weights, ensemble.place)
        longest = [serving.longest] * len(models)
        batch = Batch.of(self.ensemble.models, longest, serving.batch_size)
        self.decoder = Decoder(batch, serving.max_waiting)
        self.traces = (
            None
            if serving.traces is None
            else Traces(serving.traces, self.ensemble, serving.trace_mib)
        )
        self._methods = lru_cache(METHODS_KEPT)(self._prepared)
        self._started = int(time.time())
        self._methods(serving.method, json.dumps(serving.options, sort_keys=True))

    def _prepared(self, method: str, options: str) -> Run:
        run = Run(
            self.ensemble.models,
            self.ensemble.weights,
            self.ensemble.at,
            resolve(method, json.loads(options)),
            Settings(),
        )
        run.prepare()
        return run

    def runs(self, asked: Asked, prompts: Sequence[Prompt]) -> list[Run]:
        """Return how each prompt of a request is decoded.

        Raises:
            UserError: a method, option or limit that there is not.
            RequestError: a prompt that cannot be read, or that leaves no room for its text.
        """
        method = asked.method or self.serving.method
        own = self.serving.options if method == self.serving.method else {}
        options = {**own, **asked.options}
        self._check_options(method, options, asked.options)
        prepared = self._methods(method, json.dumps(options, sort_keys=True))
        if asked.wants_logprobs and not prepared.method.one_token:
            raise UserError(
                f"method {method!r} commits words, for which each model has a probability of its"
                " own; leave out logprobs, or use unite or gac"
            )
        return [self._limited(prepared, asked, prompt) for prompt in prompts]

    def _check_options(self, method: str, options: dict[str, Any], asked: dict[str, Any]) -> None:
        """Refuse what names files or further models: clients do not choose what is read here."""
        chosen = resolve(method, options)
        if chosen.checkpoints and (asked or method != self.serving.method):
            raise UserError(
                f"method {method!r} loads further models; start the server with it and its options"
            )
        if "gate" in asked and "fusion" in type(chosen).Options.model_fields:
            raise UserError("option 'gate' names a file; start the server with it")
        if chosen.top > MOST_TOP:
            raise UserError(
                f"method {method!r} would read {chosen.top} tokens at a time; ask for at most"
                f" {MOST_TOP}"
            )

    def _limited(self, prepared: Run, asked: Asked, prompt: Prompt) -> Run:
        """Return the run with the limits of a request; by default, with what is left of a model.

        Raises:
            RequestError: a prompt that some model cannot read, or that leaves no room for its text.
        """
        self._check_length(prompt)
        rooms = [self._room(model, prompt) for model in self.ensemble.models]
        left, model, tokens = min(rooms)
        named = asked.max_completion_tokens or asked.max_tokens
        most = named or max(1, min(left, self.serving.max_new_tokens))
        if most > left:
            raise RequestError(
                f"the prompt has {tokens} tokens in {model}, and {most} more were asked for; there"
                f" is room for {left + tokens}",
                code="context_length_exceeded",
            )
        plain = self.stops_plainly and isinstance(prompt, Chat)
        stop = [*asked.strings, *([PLAIN_STOP] if plain else [])]
        limits = {"max_new_tokens": most, "max_rounds": asked.max_rounds, "stop": stop}
        return replace(prepared, settings=parse(Settings, limits, "request"))

    def _check_length(self, prompt: Prompt) -> None:
        """Refuse what is too long for any tokenizer before one reads it."""
        longest, given = self.serving.longest, letters(prompt)
        turns = len(prompt.turns) if isinstance(prompt, Chat) else 0
        if turns > longest or given > longest * LETTERS:
            what = f"{turns} messages" if turns > longest else f"{given} characters"
            raise RequestError(
                f"the prompt has {what}; there is room for {longest} tokens (--max-length), of"
                f" {LETTERS} characters at most",
                code="context_length_exceeded",
            )

    def _room(self, model: LanguageModel, prompt: Prompt) -> tuple[int, str, int]:
        """Return how many tokens a prompt leaves in a model, its name, and those it takes."""
        try:
            tokens = len(model.prompt_ids(prompt))
        except Exception as error:  # noqa: BLE001 - tokenizers and templates raise anything
            raise RequestError(f"{model.name} cannot read the prompt: {error}") from None
        return min(model.context, self.serving.longest) - tokens, model.name, tokens

    @property
    def card(self) -> Json:
        """What /v1/models says of the ensemble."""
        members = [model.name for model in self.ensemble.models]
        return {
            "id": self.serving.name,
            "object": "model",
            "created": self._started,
            "owned_by": "adafuse",
            "adafuse": {"models": members, "method": self.serving.method},
        }

    def check_name(self, name: str | None) -> None:
        """Refuse a model that is not served here."""
        if name not in (None, self.serving.name):
            served = self.serving.name
            raise RequestError(f"there is no model {name!r}; {served!r} is served", 404)

    async def keep(self, name: str, index: int, job: Job, result: Result) -> None:
        """Write what became of a prompt to the traces, if there are any."""
        if self.traces is not None:
            try:
                add = self.traces.add
                await asyncio.to_thread(add, f"{name}-{index}", job.prompt, result, job.run)
            except (UserError, OSError) as error:  # a full disk: the answer is none the worse
                logger.warning("a trace is lost: %s", error)

    def close(self) -> None:
        """Finish what is being decoded, and write its traces."""
        self.decoder.close()
        if self.traces is not None:
            self.traces.close()


class Exchange:
    """One request and its answer: pieces or a whole, unless the client goes away before."""

    def __init__(self, service: Service, request: Request, form: type[Form]) -> None:
        self.service, self.request = service, request
        self.form = form(service.serving.name)
        self.jobs: list[Job] = []
        self.told: asyncio.Queue[tuple[int, str | Result]] = asyncio.Queue()

    async def answer(self) -> Response:
        """Return the response; what is refused is refused before anything is decoded."""
        serving = self.service.serving
        body = await read_body(self.request, serving.body)
        asked = await asyncio.to_thread(
            read_request, self.form.body, body, ignore_sampling=serving.ignore_sampling
        )
        self.service.check_name(asked.model)
        if asked.stream and asked.wants_logprobs:
            raise RequestError("logprobs come with the whole text; leave out stream or logprobs")
        prompts = asked.prompts
        most = serving.max_waiting + self.service.decoder.batch.rows
        if len(prompts) > most:
            raise RequestError(f"{len(prompts)} prompts are too many at a time; send {most}")
        runs = await asyncio.to_thread(self.service.runs, asked, prompts)
        self._submit(prompts, runs, streamed=asked.stream)
        if asked.stream:
            return StreamingResponse(
                self._pieces(asked), media_type="text/event-stream", headers=_UNBUFFERED
            )
        results = await self._results()
        if results is None:
            return Response(status_code=GONE)
        return JSONResponse(self.form.whole(results, logprobs=asked.wants_logprobs))

    def _submit(self, prompts: Sequence[Prompt], runs: Sequence[Run], *, streamed: bool) -> None:
        loop = asyncio.get_running_loop()

        def tell(index: int, what: str | Result) -> None:
            loop.call_soon_threadsafe(self.told.put_nowait, (index, what))

        deadline = time.monotonic() + self.service.serving.seconds
        self.jobs = [
            Job(run, prompt, partial(tell, index), deadline, streamed)
            for index, (prompt, run) in enumerate(zip(prompts, runs, strict=True))
        ]
        self.service.decoder.submit(self.jobs)

    def _leave(self) -> None:
        for job in self.jobs:
            job.gone = True

    async def _results(self) -> list[Result] | None:
        """Return all results; None if the client went away, which ends their decoding."""
        found: dict[int, Result] = {}
        try:
            while len(found) < len(self.jobs):
                try:
                    index, what = await asyncio.wait_for(self.told.get(), LOOK)
                except TimeoutError:
                    if await self.request.is_disconnected():
                        return None
                    continue
                if isinstance(what, Result):
                    await self.service.keep(self.form.id, index, self.jobs[index], what)
                    self._check(index, what)
                    found[index] = what
        finally:
            self._leave()
        return [found[index] for index in range(len(self.jobs))]

    def _check(self, index: int, result: Result) -> None:
        if result.error is not None:
            raise RequestError(result.error, 500)
        if self.jobs[index].overdue:
            seconds = self.service.serving.seconds
            raise RequestError(f"the request took longer than {seconds:g} s; ask for less", 504)

    async def _pieces(self, asked: Asked) -> AsyncIterator[str]:
        found: dict[int, Result] = {}
        written = [""] * len(self.jobs)
        try:
            for index in range(len(self.jobs)):
                if (begun := self.form.first(index)) is not None:
                    yield _event(begun)
            while len(found) < len(self.jobs):
                index, what = await self.told.get()
                if isinstance(what, str):
                    written[index] += what
                    yield _event(self.form.piece(index, what))
                    continue
                await self.service.keep(self.form.id, index, self.jobs[index], what)
                self._check(index, what)
                found[index] = what
                if rest := what.text[len(written[index]) :]:
                    yield _event(self.form.piece(index, rest))
                yield _event(self.form.piece(index, None, REASONS[what.stop_reason]))
            if asked.counted:
                yield _event(self.form.end([found[index] for index in range(len(found))]))
            yield "data: [DONE]\n\n"
        except RequestError as error:  # the status is sent already
            yield _event(_error(without_folders(str(error)), error.code))
        finally:
            self._leave()


GONE = 499
"""The status of a request whose client went away, which nobody reads."""
LOOK = 0.5
"""Seconds between two looks whether a client is still there."""
_UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def _event(value: Json) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _error(sentence: str, code: str | None) -> Json:
    told = {
        "message": shortened(sentence),
        "type": "invalid_request_error",
        "param": None,
        "code": code,
    }
    return {"error": told}


def _refusal(
    sentence: str, status: int, code: str | None, headers: dict[str, str] | None = None
) -> Response:
    return JSONResponse(_error(sentence, code), status, headers)


def make_app(service: Service) -> FastAPI:
    """Return the application; the decoding thread runs while the application does."""

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        service.decoder.start()
        yield
        await asyncio.to_thread(service.close)

    async def allowed(request: Request) -> None:
        key, hosts = service.serving.api_key, service.serving.hosts
        if key is None and hosts is not None:
            check_local(request, hosts)
        if key is not None and request.scope["path"] != "/health":
            check_key(request, key)

    app = FastAPI(
        title="AdaFuse",
        version=__version__,
        lifespan=running,
        dependencies=[Depends(allowed)],
        docs_url=None,  # pages that would need no key
        redoc_url=None,
        openapi_url=None,
    )

    _refuse_with(app)

    @app.get("/health")
    async def _health() -> Response:
        alive = service.decoder.alive
        return JSONResponse({"status": "ok" if alive else "stopped"}, 200 if alive else 503)

    @app.get("/metrics")
    async def _metrics() -> Response:
        return PlainTextResponse(metrics(service.decoder))

    @app.get("/v1/models")
    async def _models() -> Response:
        return JSONResponse({"object": "list", "data": [service.card]})

    @app.get("/v1/models/{name:path}")
    async def _model(name: str) -> Response:
        service.check_name(name)
        return JSONResponse(service.card)

    @app.post("/v1/completions")
    async def _completions(request: Request) -> Response:
        return await Exchange(service, request, TextForm).answer()

    @app.post("/v1/chat/completions")
    async def _chat(request: Request) -> Response:
        return await Exchange(service, request, ChatForm).answer()

    return app


def _refuse_with(app: FastAPI) -> None:
    """Answer what is raised with a sentence in OpenAI's form, and its status."""

    @app.exception_handler(HTTPException)
    async def _elsewhere(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        told = f"{request.method} {request.url.path}: {error.detail}; docs/serve.md lists the paths"
        return _refusal(told, error.status_code, None)

    @app.exception_handler(RequestError)
    async def _refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestError)
        return _refusal(without_folders(str(error)), error.status, error.code)

    @app.exception_handler(BusyError)
    async def _busy(_: Request, error: Exception) -> Response:
        assert isinstance(error, BusyError)
        status, code = (503, "stopping") if error.stopping else (429, "queue_full")
        return _refusal(str(error), status, code, {"Retry-After": "1"})

    @app.exception_handler(ClientDisconnect)
    async def _left(_: Request, __: Exception) -> Response:
        return Response(status_code=GONE)

    @app.exception_handler(UserError)
    async def _wrong(_: Request, error: Exception) -> Response:
        return _refusal(without_folders(str(error)), 400, None)
