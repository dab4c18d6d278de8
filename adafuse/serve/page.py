"""The live page at `/`: a prompt, its options, and the rounds of its text as they are decoded."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import Response
from pydantic_core import to_json

import adafuse.report
from adafuse.decoding.method import Method
from adafuse.errors import UserError
from adafuse.methods import METHODS
from adafuse.models.language_model import LanguageModel, ServedModel
from adafuse.serve.protocol import Json, RequestError
from adafuse.serve.traces import Traces

Choose = Callable[[str, dict[str, Any]], Method[Any]]
"""Returns a method with options, or refuses what a request may not name."""

_OWN = Path(__file__).parent / "page"
_REPORT = Path(adafuse.report.__file__).parent / "assets"
_ASSETS = (
    *("theme.css", "explorer.css", "theme.js", "chunks.js", "dom.js"),
    *("model.js", "spans.js", "rounds.js", "detail.js"),
)
"""What the page takes from the trace explorer."""
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'; require-trusted-types-for 'script'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

FILES = {
    "/": _OWN / "live.html",
    **{f"/assets/{name}": _OWN / name for name in ("live.css", "live.js")},
    **{f"/assets/{name}": _REPORT / name for name in _ASSETS},
}
"""The files of the page by path. They are the same for everybody and need no key."""


def add_page(
    app: FastAPI,
    models: Sequence[LanguageModel],
    choose: Choose,
    traces: Traces | None,
    defaults: Json,
) -> None:
    """Add the page to an application, with what it asks the server besides completions.

    `defaults` are the `method` and `max_tokens` of a request that names none.
    """
    for path, file in FILES.items():
        headers = {**_HEADERS, "Content-Type": f"{_TYPES[file.suffix]}; charset=utf-8"}
        answer = Response(file.read_bytes(), headers=headers)
        app.get(path)(lambda answer=answer: answer)

    @app.get("/live/setup")
    async def _setup() -> Response:
        methods = _methods(models, choose)
        names = [model.name for model in models]
        return _json({**defaults, "models": names, "methods": methods, "traces": bool(traces)})

    @app.get("/live/traces/{name}")
    async def _trace(name: str) -> Response:
        row = None if traces is None else await asyncio.to_thread(traces.find, name)
        if row is None:
            raise RequestError(f"there is no trace {name!r}; it may have been deleted", 404)
        return _json(row)


def _json(value: Json) -> Response:
    """Return what is sent as JSON, in which what is not finite is null."""
    return Response(to_json(value, inf_nan_mode="null"), media_type="application/json")


def _methods(models: Sequence[LanguageModel], choose: Choose) -> Json:
    """Return the methods with the options that a request may name."""
    methods = {}
    for name in METHODS:
        with suppress(UserError):  # one that these models, or requests, cannot use
            method = choose(name, {})
            method.check_models(len(models))
            method.check_served([m.name for m in models if isinstance(m, ServedModel)])
            methods[name] = _described(method)
    return methods


def _described(method: Method[Any]) -> Json:
    """Return the options of a method, without those that name files or have no value."""
    values = method.options.model_dump(mode="json")
    kinds: dict[str, Any] = {} if method.checkpoints else method.Options.model_json_schema()
    options = {
        option: {
            "value": values[option],
            "choices": [True, False] if kind.get("type") == "boolean" else kind.get("enum"),
            "description": kind.get("description", ""),
        }
        for option, kind in kinds.get("properties", {}).items()
        if option not in method.files and values[option] is not None
    }
    return {"options": options, "threshold": method.threshold}
