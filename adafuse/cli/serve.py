"""`adafuse serve`: an OpenAI-compatible server over an ensemble."""

import logging
import math
import os
import signal
import socket
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adafuse.cli.generate import MethodOption, Weights, check_decoding, load
from adafuse.cli.options import (
    BatchSize,
    MaxNewTokens,
    MethodName,
    ThreadsOption,
    option,
    with_models,
    with_options,
    with_plugins,
)
from adafuse.errors import UserError
from adafuse.models.spec import ModelSpec
from adafuse.storage.files import located, read_text

if TYPE_CHECKING:
    from adafuse.serve.app import Service

SERVER = "Server"
KEY = "ADAFUSE_API_KEY"


Host = Annotated[str, option("Address to listen on; 0.0.0.0 means all addresses.", "HOST", SERVER)]
Port = Annotated[int, option("Port to listen on; 0 picks a free port.", "N", SERVER)]
Name = Annotated[str, option("Name of the model that clients see.", "NAME", SERVER)]
MaxWaiting = Annotated[
    int, option("Maximum number of waiting prompts; more are refused (429).", "N", SERVER, min=0)
]
MaxLength = Annotated[int, option("Maximum tokens of a prompt plus its text.", "N", SERVER, min=2)]
Timeout = Annotated[float, option("Maximum seconds of a request.", "S", SERVER, min=1)]
MaxBody = Annotated[int, option("Maximum bytes of a request.", "N", SERVER, min=1)]
KeyFile = Annotated[
    Path | None, option(f"A file with the key that clients need; or set {KEY}.", "FILE", SERVER)
]
TracesFolder = Annotated[
    Path | None, option("Folder for the traces of all requests.", "FOLDER", SERVER)
]
TracesSize = Annotated[
    int, option("Maximum MiB of traces; the oldest files are deleted.", "N", SERVER, min=1)
]
IgnoreSampling = Annotated[
    bool, option("Ignore temperature, top_p etc. instead of refusing them.", "", SERVER)
]
Page = Annotated[
    bool, option("Answer / with a page that shows decoding.", "", SERVER, "--page/--no-page")
]
LogRequests = Annotated[
    bool,
    option(
        "Write a line for each prompt and each refusal to stderr.",
        "",
        SERVER,
        "--log-requests/--no-log-requests",
    ),
]
OWN, PLAINLY = "own", "plain"
Templates = Annotated[
    list[str] | None,
    option(
        "Chat template: a Jinja file, plain, or own (the model's own; plain if it has none). One"
        " value, or one per model.",
        "FILE",
        SERVER,
    ),
]


@with_plugins
@with_models
def serve(
    host: Host = "127.0.0.1",
    port: Port = 8000,
    name: Name = "adafuse",
    max_waiting: MaxWaiting = 256,
    max_length: MaxLength = 4096,
    timeout: Timeout = 600,
    max_body: MaxBody = 1 << 20,
    api_key_file: KeyFile = None,
    traces: TracesFolder = None,
    traces_size: TracesSize = 1024,
    ignore_sampling: IgnoreSampling = False,
    chat_template: Templates = None,
    page: Page = True,
    log_requests: LogRequests = True,
    method: MethodName = "adafuse",
    option: MethodOption = None,
    max_new_tokens: MaxNewTokens = 256,
    batch_size: BatchSize = "32",
    threads: ThreadsOption = "auto",
    weight: Weights = None,
    *,
    models: list[ModelSpec],
) -> None:
    """Answer OpenAI clients with an ensemble.

    /v1/completions and /v1/chat/completions, streamed or not; a request may
    name a method and its options. Ctrl-C or SIGTERM: running requests finish.
    """
    options = with_options({}, option or [])
    limits = {"max_new_tokens": max_new_tokens, "batch_size": batch_size}
    check_decoding(len(models), method, options, limits)
    if max_new_tokens >= max_length:
        raise UserError(
            f"--max-new-tokens {max_new_tokens} leaves no room for a prompt in --max-length"
            f" {max_length}; raise that"
        )
    key, templates = _key(api_key_file), _templates(chat_template or [OWN], len(models))
    with _listening(host, port) as listener:
        from adafuse.serve.app import Service, Serving

        serving = Serving(
            name, method, options, max_new_tokens, batch_size, max_waiting,
            longest=max_length, seconds=timeout, body=max_body, api_key=key, traces=traces,
            trace_mib=traces_size, hosts=(host,) if _is_local(listener) else None,
            ignore_sampling=ignore_sampling, templates=templates,
            template_kwargs=tuple(model.chat_template_kwargs or {} for model in models),
            page=page,
        )  # fmt: skip
        if log_requests:
            _log_requests()
        own = [*map(_without_variables, models, templates)]
        _answer(listener, Service(load(own, weight, threads), serving))


def _answer(listener: socket.socket, service: "Service") -> None:
    """Answer clients until a signal comes, which the server finishes on and then passes on."""
    import uvicorn

    from adafuse.serve.app import make_app
    from adafuse.serve.guards import MOST_CONNECTIONS, Connection

    app: Any = make_app(service)
    plan = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        http=Connection,
        ws="none",
        limit_concurrency=MOST_CONNECTIONS,
        # for a client that does not read its stream
        timeout_graceful_shutdown=math.ceil(service.serving.seconds),
    )
    host, port = listener.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    typer.echo(f"{service.serving.name} answers at http://{address}/v1", err=True)
    if service.serving.page:
        typer.echo(f"Watch it decode at http://{address}/", err=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    uvicorn.Server(plan).run(sockets=[listener])


def _log_requests() -> None:
    log, handler = logging.getLogger("adafuse.serve.requests"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


def _key(file: Path | None) -> str | None:
    """Return the key of a file or of the environment; a command line is seen by everybody."""
    if file is None:
        return os.environ.get(KEY) or None
    key = read_text(file, "--api-key-file").strip()
    if not key:
        raise UserError(f"--api-key-file {str(file)!r} is empty; write the key into it")
    return key


def _templates(given: list[str], count: int) -> tuple[str | None, ...]:
    """Return the text of a chat template per model; None: its own."""
    if len(given) not in (1, count):
        raise UserError(
            f"{len(given)} values of --chat-template for {count} models; give one, or one per model"
        )
    from adafuse.serve.models import PLAIN

    named = {OWN: None, PLAINLY: PLAIN}
    texts = [
        named[name] if name in named else read_text(Path(located(name)), "chat template")
        for name in given
    ]
    return tuple(texts * (count if len(texts) == 1 else 1))


def _without_variables(model: ModelSpec, template: str | None) -> ModelSpec:
    """Return a model without the variables of a template that replaces its own, if one is given."""
    update = {} if template is None else {"chat_template_kwargs": None}
    return model.model_copy(update=update)


def _is_local(listener: socket.socket) -> bool:
    return ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        reason = str(getattr(error, "strerror", None) or error).partition(" (while")[0]
        raise UserError(
            f"the server cannot listen at {host}:{port} ({reason}); give another --host or --port"
        ) from None
