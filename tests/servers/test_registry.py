import socket

import pytest

from adafuse.errors import UserError
from adafuse.servers import registry
from adafuse.servers.registry import add, connect
from adafuse.servers.server import Server
from adafuse.servers.vllm import Vllm
from tests.support.stand_in import standing


def test_the_only_model_of_a_server_needs_no_name(server):
    assert connect(server.url, None, None, [2]).name == "toy"
    assert connect(f"{server.url}/v1/", "toy", None, [2]).name == "toy"


def test_a_model_that_is_not_there_is_refused_with_those_that_are(server):
    with pytest.raises(UserError, match=r"has the models toy; set server_model to one of them$"):
        connect(server.url, "other", None, [2])


def test_a_server_of_an_unknown_kind_is_refused(distributions):
    with (
        standing(distributions[1], owner="acme") as server,
        pytest.raises(UserError, match=r"is of 'acme', which is unknown; use one of vllm"),
    ):
        connect(server.url, None, None, [2])


def test_where_nothing_listens_one_sentence_says_so():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(UserError, match=rf"^there is no server of a model at {url} \(.*start it"):
        connect(url, None, None, [2])


def test_what_is_no_server_of_models_is_refused(server, monkeypatch):
    monkeypatch.setattr(type(server), "answer", lambda *ask: ["hello"])
    with pytest.raises(UserError, match=r"^there is no server of a model at"):
        connect(server.url, None, None, [2])


def test_a_server_that_hides_its_version_is_refused(server, monkeypatch):
    whole = type(server).answer
    hidden = lambda self, path, *more: {} if path == "/version" else whole(self, path, *more)  # noqa: E731
    monkeypatch.setattr(type(server), "answer", hidden)
    with pytest.raises(
        UserError, match=r"its model toy as vllm does \(KeyError: 'version'\); start"
    ):
        connect(server.url, None, None, [2])


def test_another_package_adds_a_kind_of_server(distributions, monkeypatch):
    class Acme(Vllm):
        engine = "acme"

        @classmethod
        def recognizes(cls, owner):
            return owner == "acme"

    monkeypatch.setattr(registry, "SERVERS", [Vllm])
    add(Acme)
    with standing(distributions[1], owner="acme") as server:
        assert type(connect(server.url, None, None, [2])) is Acme


class Unnamed(Server):
    """A kind of server without its parts."""


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Unnamed, "kind of server Unnamed has no engine; give it one"),
        (type("Half", (Unnamed,), {"engine": "half"}), "kind of server Half has no recognizes;"),
        (type("Other", (Vllm,), {}), "there are two servers 'vllm' "),
    ],
)
def test_a_kind_that_is_not_whole_or_has_the_engine_of_another_is_refused(kind, sentence):
    before = [*registry.SERVERS]
    with pytest.raises(UserError, match=sentence):
        add(kind)
    assert before == registry.SERVERS


@pytest.mark.parametrize("odd", [object, 3, Vllm.describe])
def test_what_is_no_kind_of_server_is_not_added(odd):
    with pytest.raises(UserError, match="is not a kind of server; derive a class from Server"):
        add(odd)
