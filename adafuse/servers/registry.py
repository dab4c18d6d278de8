"""The kinds of servers. Another package adds its own as an entry point of `adafuse.servers`."""

from collections.abc import Sequence

from adafuse.errors import ExampleError, UserError, unknown
from adafuse.plugins import add_installed, twice
from adafuse.servers.http import Http
from adafuse.servers.llama_cpp import LlamaCpp
from adafuse.servers.server import Server, served_models
from adafuse.servers.vllm import Vllm

SERVERS: list[type[Server]] = [Vllm, LlamaCpp]


def add(kind: type[Server]) -> None:
    """Add a kind of server.

    Raises:
        UserError: it is not a whole subclass of `Server`, or another kind has its engine.
    """
    if not (isinstance(kind, type) and issubclass(kind, Server)):
        raise UserError(f"{kind!r} is not a kind of server; derive a class from Server")
    needed = ("engine", "recognizes", "describe", "write")
    if missing := [n for n in needed if not hasattr(kind, n) or n in kind.__abstractmethods__]:
        raise UserError(f"kind of server {kind.__name__} has no {missing[0]}; give it one")
    for known in SERVERS:
        if known is not kind and known.engine == kind.engine:
            raise UserError(twice("server", kind.engine, known, kind))
    SERVERS.append(kind)


add_installed("server", add)


def kind_of(engine: str) -> type[Server]:
    """Return the kind of servers that run an engine.

    Raises:
        UserError: there is none.
    """
    known = {kind.engine: kind for kind in SERVERS}
    if engine not in known:
        raise UserError(unknown("engine", engine, list(known)))
    return known[engine]


def connect(url: str, name: str | None, key: str | None, end_ids: Sequence[int]) -> Server:
    """Return the model called `name` on the server at `url`, or the only one there.

    Raises:
        UserError: no server of models is there, or of no known kind, or none of its models is it.
    """
    http = Http(url, key)
    models = served_models(http)
    if name not in models if name is not None else len(models) != 1:
        known = ", ".join(models) or "none"
        raise UserError(f"the server {url} has the models {known}; set server_model to one of them")
    name = name or next(iter(models))
    owner = str(models[name].get("owned_by"))
    for kind in SERVERS:
        if kind.recognizes(owner):
            try:
                return kind(http, name, end_ids)
            except ExampleError as error:
                raise UserError(f"{error}; `adafuse doctor --server` tells more") from error
    kinds = ", ".join(kind.engine for kind in SERVERS)
    raise UserError(f"the server {url} is of {owner!r}, which is unknown; use one of {kinds}")
