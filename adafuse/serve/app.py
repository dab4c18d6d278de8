"""The HTTP side of the server: OpenAI's completions and chat completions, health and metrics."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from adafuse.decoding.method import Method
from adafuse.decoding.run import Batch, Run
from adafuse.decoding.words import Settings
from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.methods import METHODS, resolve
from adafuse.models.language_model import LanguageModel
from adafuse.options import parse
from adafuse.records.result import Chat, Prompt, Result, letters
from adafuse.serve.decoder import DecodingThread, Job, News
from adafuse.serve.guards import check_key, check_local, read_body, shortened
from adafuse.serve.metrics import Times, requests
from adafuse.serve.models import PLAIN, PLAIN_STOP, served_models, with_effort
from adafuse.serve.page import FILES, add_page
from adafuse.serve.protocol import (
    Body,
    Completion,
    Conversation,
    Json,
    Reply,
    RequestError,
    read_request,
)
from adafuse.serve.traces import Traces
from adafuse.storage.files import without_folders
from adafuse.tokenization.prompts import check_read
from adafuse.tokenization.thoughts import Thoughts, shared_thoughts
from adafuse.version import __version__

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Serving:
    """What a server offers: `name` is that of the ensemble, the others are limits and defaults.

    `longest` is the most ids of a prompt with its text, `seconds` the time of a request, `body` the
    bytes of one. Without a key, only requests to and from `hosts` and this machine are answered
    (None: all). `templates` are chat templates, one per model (None: its own, or `PLAIN`), and
    `template_kwargs` the variables of those that are given.
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
    template_kwargs: tuple[dict[str, Any], ...] = ()
    page: bool = True


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
        models = served_models(ensemble.models, serving.templates, serving.template_kwargs)
        self.stops_plainly = any(m.tokenizer.chat_template == PLAIN for m in models)
        self.ensemble = Ensemble(models, ensemble.weights, ensemble.place)
        longest = [serving.longest] * len(models)
        batch = Batch.of(self.ensemble.models, longest, serving.batch_size)
        self.decoder = DecodingThread(batch, serving.max_waiting)
        folder = serving.traces
        self.traces = Traces(folder, self.ensemble, serving.trace_mib) if folder else None
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

    def runs(self, body: Body, prompts: Sequence[Prompt]) -> list[Run]:
        """Return how each prompt of a request is decoded.

        Raises:
            UserError: a method, option or limit that there is not.
            RequestError: a prompt that cannot be read, or that leaves no room for its text.
        """
        method = self.serving.method if body.method is None else body.method
        known = METHODS[method].Options.model_fields if method in METHODS else ()
        self.chosen(method, given := body.options_among(known))
        options = self._merged(method, given)
        prepared = self._methods(method, json.dumps(options, sort_keys=True))
        if body.wants_logprobs and not prepared.method.one_token:
            raise UserError(
                f"method {method!r} commits words, which have no common log-probability; leave"
                " out logprobs, or use unite or gac"
            )
        return [self._limited(prepared, body, prompt) for prompt in prompts]

    def _merged(self, method: str, given: dict[str, Any]) -> dict[str, Any]:
        own = self.serving.options if method == self.serving.method else {}
        return {**own, **given}

    def chosen(self, method: str, given: dict[str, Any]) -> Method[Any]:
        """Return a method with the options that a request gave, the others as at the start.

        Raises:
            UserError: it names files or further models: clients do not choose what is read here.
        """
        chosen = resolve(method, self._merged(method, given))
        if chosen.checkpoints and (given or method != self.serving.method):
            raise UserError(
                f"method {method!r} loads other models, which a request cannot do; start the"
                " server with it and its options"
            )
        if files := chosen.files.keys() & given:
            raise UserError(f"option {min(files)!r} names a file; start the server with it")
        if chosen.top > MOST_TOP:
            raise UserError(
                f"method {method!r} would read {chosen.top} tokens at a time; ask for at most"
                f" {MOST_TOP}"
            )
        return chosen

    def _limited(self, prepared: Run, body: Body, prompt: Prompt) -> Run:
        """Return the run with the limits of a request; by default, with what is left of a model.

        Raises:
            RequestError: a prompt that some model cannot read, or that leaves no room for its text.
        """
        self._check_length(prompt)
        if isinstance(prompt, Chat):
            check_read([model.tokenizer for model in self.ensemble.models], prompt)
        rooms = [self._room(model, prompt) for model in self.ensemble.models]
        left, model, tokens = min(rooms)
        named = body.max_completion_tokens or body.max_tokens
        most = named or max(1, min(left, self.serving.max_new_tokens))
        if most > left:
            raise RequestError(
                f"the prompt has {tokens} tokens in {model}, and {most} more were asked for; there"
                f" is room for {left + tokens}",
                code="context_length_exceeded",
            )
        plain = self.stops_plainly and isinstance(prompt, Chat)
        stop = [*body.strings, *([PLAIN_STOP] if plain else [])]
        limits = {"max_new_tokens": most, "max_rounds": body.max_rounds, "stop": stop}
        return replace(prepared, settings=parse(Settings, limits, "request"))

    def thoughts(self, body: Body, prompt: Prompt) -> Thoughts | None:
        """Return the thoughts that a text may begin with, where its reply has them apart.

        Raises:
            UserError: some models think after this prompt, and others do not.
        """
        models = self.ensemble.models
        thoughts = shared_thoughts(models, prompt, [model.prompt_ids(prompt) for model in models])
        return thoughts if isinstance(body, Conversation) else None

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

    async def keep(self, job: Job, result: Result) -> None:
        """Write what became of a prompt to the traces, if there are any."""
        if self.traces is not None:
            if job.overdue:
                result = replace(result, stop_reason="error", error=str(self.late()))
            try:
                add = self.traces.add
                await asyncio.to_thread(add, job.name, job.prompt, result, job.run)
            except (UserError, OSError) as error:  # a full disk: the answer is none the worse
                logger.warning("a trace is lost: %s", error)

    def late(self) -> RequestError:
        """Return the refusal of a request that took too long."""
        seconds = self.serving.seconds
        return RequestError(f"the request took longer than {seconds:g} s; ask for less", 504)

    def close(self) -> None:
        """Finish what is being decoded, and write its traces."""
        self.decoder.close()
        if self.traces is not None:
            self.traces.close()


class Exchange:
    """One request and its reply: pieces or a whole, unless the client goes away before."""

    def __init__(self, service: Service, request: Request, kind: type[Body]) -> None:
        self.service, self.request, self.kind = service, request, kind
        self.came = time.monotonic()
        self.jobs: list[Job] = []
        self.queue: asyncio.Queue[tuple[int, News | Result]] = asyncio.Queue()

    async def response(self) -> Response:
        """Return the response; what is refused is refused before anything is decoded."""
        serving = self.service.serving
        content = await read_body(self.request, serving.body)
        body = await asyncio.to_thread(
            read_request, self.kind, content, ignore_sampling=serving.ignore_sampling
        )
        self.service.check_name(body.model)
        if body.stream and body.wants_logprobs:
            raise RequestError("logprobs come with the whole text; leave out stream or logprobs")
        prompts, models = body.prompts, self.service.ensemble.models
        if isinstance(body, Conversation) and body.reasoning_effort is not None:
            prompts = [with_effort(models, prompt, body.reasoning_effort) for prompt in prompts]
        most = serving.max_waiting + self.service.decoder.batch.rows
        if len(prompts) > most:
            raise RequestError(f"{len(prompts)} prompts are too many at a time; send {most}")
        runs = await asyncio.to_thread(self.service.runs, body, prompts)
        split = partial(self.service.thoughts, body)
        thoughts = await asyncio.to_thread(lambda: [*map(split, prompts)])
        reply = Reply(body, serving.name)
        self._submit(reply, prompts, runs, thoughts)
        if body.stream:
            return StreamingResponse(
                self._pieces(reply), media_type="text/event-stream", headers=_UNBUFFERED
            )
        results = {n: what async for n, what in self._events(reply) if isinstance(what, Result)}
        return JSONResponse(reply.whole([results[n] for n in range(len(self.jobs))], thoughts))

    def _submit(
        self,
        reply: Reply,
        prompts: Sequence[Prompt],
        runs: Sequence[Run],
        thoughts: Sequence[Thoughts | None],
    ) -> None:
        loop = asyncio.get_running_loop()

        def tell(index: int, what: News | Result) -> None:
            loop.call_soon_threadsafe(self.queue.put_nowait, (index, what))

        deadline = time.monotonic() + self.service.serving.seconds
        self.jobs = [
            Job(
                f"{reply.id}-{index}",
                run,
                prompt,
                partial(tell, index),
                deadline,
                reply.body.stream,
                own,
                times=Times(self.came),
            )
            for index, (prompt, run, own) in enumerate(zip(prompts, runs, thoughts, strict=True))
        ]
        self.service.decoder.submit(self.jobs)

    async def _events(self, reply: Reply) -> AsyncGenerator[tuple[int, News | Result]]:
        """Yield what is decoded, with the number of its prompt, until all have their result.

        Raises:
            RequestError: a prompt failed, or took too long.
            ClientDisconnect: the client went away; that ends the decoding of all, as any error.
        """
        left = len(self.jobs)
        try:
            while left:
                try:
                    index, what = await asyncio.wait_for(self.queue.get(), LOOK)
                except TimeoutError:
                    self._check_time()
                    # A stream is watched by its response.
                    if not reply.body.stream and await self.request.is_disconnected():
                        raise ClientDisconnect from None
                    continue
                if isinstance(what, Result):
                    left -= 1
                    await self.service.keep(self.jobs[index], what)
                    self._check(self.jobs[index], what)
                yield index, what
        finally:
            for job in self.jobs:
                job.gone = True

    def _check(self, job: Job, result: Result) -> None:
        if result.error is not None:
            raise RequestError(result.error, 500)
        if job.overdue:
            raise self.service.late()

    def _check_time(self) -> None:
        """End jobs that are late and not told so, as where a server of a model is silent."""
        if time.monotonic() > max(job.deadline for job in self.jobs) + LOOK:
            for job in self.jobs:
                job.overdue = True
            raise self.service.late()

    async def _pieces(self, reply: Reply) -> AsyncIterator[str]:
        results: dict[int, Result] = {}
        written, sent = [""] * len(self.jobs), [("", "")] * len(self.jobs)
        shown = [0] * len(self.jobs)
        async with aclosing(self._events(reply)) as events:
            try:
                for index in range(len(self.jobs)):
                    if (first := reply.first(index)) is not None:
                        yield _event(first)
                async for index, what in events:
                    done = what if isinstance(what, Result) else None
                    said = what.text if done is not None else written[index] + what.text
                    rounds = what.rounds[shown[index] :] if done is not None else what.rounds
                    written[index], shown[index] = said, shown[index] + len(rounds)
                    before, sent[index] = sent[index], self._parts(index, said, done)
                    grown = zip(before, sent[index], strict=True)
                    reasoning, text = (new[len(old) :] for old, new in grown)
                    if reasoning or text or (rounds and reply.body.rounds):
                        yield _event(reply.piece(index, text, reasoning, rounds))
                    if done is not None:
                        results[index] = done
                        yield _event(reply.last(index, done))
                if reply.body.counted:
                    yield _event(reply.end([results[index] for index in range(len(results))]))
                yield "data: [DONE]\n\n"
            except RequestError as error:  # the status is sent already
                yield _event(_error(without_folders(str(error)), error.status, error.code))

    def _parts(self, index: int, text: str, done: Result | None) -> tuple[str, str]:
        """Return the thoughts and the answer of a text, as far as both are sure."""
        thoughts = self.jobs[index].thoughts
        if thoughts is None or (done is not None and not done.thoughts):
            return "", text
        return thoughts.split(text, whole=done is not None)


GONE = 499
"""The status of a request whose client went away, which nobody reads."""
LOOK = 0.5
"""Seconds between two looks whether a client is still there."""
_UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def _event(value: Json) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _error(sentence: str, status: int, code: str | None = None) -> Json:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": shortened(sentence), "type": kind, "param": None, "code": code}}


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
        if key is not None and request.scope["path"] not in {"/health", *FILES}:
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
        return PlainTextResponse(service.decoder.metrics.text())

    @app.get("/v1/models")
    async def _models() -> Response:
        return JSONResponse({"object": "list", "data": [service.card]})

    @app.get("/v1/models/{name:path}")
    async def _model(name: str) -> Response:
        service.check_name(name)
        return JSONResponse(service.card)

    @app.post("/v1/completions")
    async def _completions(request: Request) -> Response:
        return await Exchange(service, request, Completion).response()

    @app.post("/v1/chat/completions")
    async def _chat(request: Request) -> Response:
        return await Exchange(service, request, Conversation).response()

    if service.serving.page:
        own = service.serving
        defaults = {"method": own.method, "max_tokens": own.max_new_tokens}
        add_page(app, service.ensemble.models, service.chosen, service.traces, defaults)
    return app


def _refuse_with(app: FastAPI) -> None:
    """Answer what is raised with a sentence in OpenAI's form, and its status."""

    @app.exception_handler(HTTPException)
    async def _elsewhere(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        _log_refusal(request, error.status_code, str(error.detail))
        where = f"{request.method} {request.url.path}"
        sentence = f"{where}: {error.detail}; docs/serve.md lists the paths"
        return JSONResponse(_error(sentence, error.status_code), error.status_code)

    @app.exception_handler(ClientDisconnect)
    async def _left(_: Request, __: Exception) -> Response:
        return Response(status_code=GONE)

    @app.exception_handler(UserError)
    async def _wrong(request: Request, error: Exception) -> Response:
        refused = error if isinstance(error, RequestError) else RequestError(str(error))
        _log_refusal(request, refused.status, str(refused))
        later = {"Retry-After": "1"} if refused.status in (429, 503) else None
        content = _error(without_folders(str(refused)), refused.status, refused.code)
        return JSONResponse(content, refused.status, later)


def _log_refusal(request: Request, status: int, reason: str) -> None:
    path, why = map(shortened, (request.url.path, without_folders(reason)))
    requests.info("%s %r status=%d %r", request.method, path, status, why)
