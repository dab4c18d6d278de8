import logging
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import certifi
import pytest

from adafuse.errors import ExampleError, UserError
from adafuse.servers import http as http_module
from adafuse.servers.http import ATTEMPTS, Fault, Http
from tests.support.stand_in import ensemble, standing

KEY = "sk-a7-secret"
BODY = {"model": "toy", "prompt": [50, 51], "max_tokens": 2, "logprobs": 8, "stop_token_ids": [2]}


def times(kind, count):
    """A fault, so many times."""
    left = [kind] * count
    return lambda body: left.pop() if left else None


def ask(http):
    return http.post("/v1/completions", BODY, lambda answer: answer["usage"]["completion_tokens"])


@pytest.mark.parametrize("kind", ["slow", "busy", "broken", "half", "cut", "not json"])
def test_a_request_is_sent_again_until_it_is_answered(server, kind):
    server.fault = times(kind, 2)
    assert ask(Http(server.url)) == 2


@pytest.mark.parametrize("kind", ["busy", "broken", "half", "cut", "not json"])
def test_a_request_that_always_fails_ends_with_one_sentence(server, kind):
    server.fault = times(kind, 100)
    http = Http(server.url)
    http.attempts = ATTEMPTS
    with pytest.raises(ExampleError, match=rf"^the server {server.url} failed 9 times \(.*log$"):
        ask(http)
    assert not server.asked or len(server.asked) == ATTEMPTS


def test_a_server_that_is_known_to_have_ended_is_not_asked_again(server, monkeypatch):
    server.fault = times("broken", 100)
    http = Http(server.url)
    http.attempts = ATTEMPTS
    ended = iter([False, True])
    monkeypatch.setitem(http_module.ENDED, server.url, lambda: next(ended))
    with pytest.raises(ExampleError, match=r"failed 2 times \(HTTP status 500\)"):
        ask(http)


def test_an_answer_that_cannot_be_used_is_asked_for_again(server):
    seen = []

    def read(answer):
        seen.append(answer)
        if len(seen) < 3:
            raise Fault("odd")
        return len(seen)

    assert Http(server.url).post("/v1/completions", BODY, read) == 3


def test_what_a_server_refuses_is_not_asked_again(server):
    with pytest.raises(ExampleError, match=r"refuses \(404\): The model `x` does not exist"):
        Http(server.url).post("/v1/completions", BODY | {"model": "x"}, lambda answer: answer)
    assert len(server.asked) == 1


def test_a_redirect_is_not_followed_and_says_where_the_server_is(server, monkeypatch):
    def moved(handler, *_, **__):
        handler.wfile.write(b"HTTP/1.1 301 -\r\nContent-Length: 0\r\nLocation: /other/\r\n\r\n")

    monkeypatch.setattr(server._server.RequestHandlerClass, "_say", moved)
    with pytest.raises(ExampleError, match=rf"refuses \(301\): it is at {server.url}/other/$"):
        ask(Http(server.url))


@pytest.mark.parametrize(
    ("asked", "failures"), [({"model": "x"}, 1), ({"max_tokens": 0}, 0)], ids=["404", "400"]
)
def test_a_refusal_is_a_failure_of_the_server_unless_the_request_is_wrong(server, asked, failures):
    http = Http(server.url)
    with pytest.raises(ExampleError, match="refuses"):
        http.post("/v1/completions", BODY | asked, lambda answer: answer)
    assert len(http.failures) == failures


def test_closing_ends_a_request_whose_answer_is_awaited(server):
    asked, ended = threading.Event(), threading.Event()
    server.fault = lambda body: asked.set() or ended.wait(30)
    http = Http(server.url)
    with ThreadPoolExecutor(1) as pool:
        awaited = pool.submit(ask, http)
        assert asked.wait(30)
        http.close()
        with pytest.raises(ExampleError, match="failed 1 times"):
            awaited.result(10)
        ended.set()


def test_the_server_is_checked_before_an_answer_after_a_new_connection_is_used(server):
    http, checks = Http(server.url), []
    ask(http)
    http.recheck = lambda: checks.append(ask(http))
    ask(http)
    assert checks == []
    server.stop()
    server.start()
    ask(http)
    assert checks == [2]
    ask(http)
    assert checks == [2]


def test_the_server_is_checked_after_it_has_failed_on_the_same_connection(server):
    http, checks = Http(server.url), []
    ask(http)
    http.recheck = lambda: checks.append(ask(http))
    server.fault = times("broken", 1)  # as a proxy answers while the server behind it starts
    ask(http)
    assert checks == [2]
    server.fault = times("busy", 1)
    ask(http)
    assert checks == [2]


def test_after_a_check_has_failed_no_answer_is_used(server):
    http = Http(server.url)

    def refuse():
        raise ExampleError("another model")

    http.recheck = refuse
    for _ in range(3):
        with pytest.raises(ExampleError, match="another model"):
            ask(http)


@pytest.mark.parametrize("url", ["node7:8000", "ftp://node7", "http://node7:port", ""])
def test_what_is_no_url_is_refused(url):
    with pytest.raises(UserError, match=r"is not a URL; write one such as http://node7:8000$"):
        Http(url)


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "socks://127.0.0.1:9"])
def test_no_proxy_is_used_for_a_server_on_this_machine(server, monkeypatch, proxy):
    monkeypatch.setenv("all_proxy", proxy)
    assert ask(Http(server.url)) == 2


def test_certificates_of_the_environment_count_for_a_server_on_this_machine(monkeypatch, tmp_path):
    end = "-----END CERTIFICATE-----\n"
    one = Path(certifi.where()).read_text(encoding="utf-8").partition(end)[0] + end
    (tmp_path / "one.pem").write_text(one, encoding="utf-8")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "one.pem"))
    context = Http("https://localhost:8000")._client._transport._pool._ssl_context
    assert len(context.get_ca_certs()) == 1


def test_messages_name_the_proxy_of_a_server(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with pytest.raises(ExampleError, match=r"proxy that http_proxy names \(.* add node7 to no_p"):
        ask(Http("http://node7:8000"))
    monkeypatch.setenv("http_proxy", "socks://127.0.0.1:9")
    with pytest.raises(UserError, match=r"proxy of the environment \(Unknown scheme.*; unset"):
        Http("http://node7:8000")


def test_the_variable_of_a_key_must_be_there(monkeypatch):
    monkeypatch.delenv("TOY_KEY", raising=False)
    with pytest.raises(UserError, match=r"^there is no environment variable TOY_KEY with an API"):
        Http("http://localhost", "TOY_KEY")


@pytest.mark.parametrize("key", [f"{KEY}\nx", f"{KEY}é"])
def test_a_key_that_cannot_be_sent_is_refused_without_being_shown(monkeypatch, key):
    monkeypatch.setenv("TOY_KEY", key)
    with pytest.raises(UserError, match=r"TOY_KEY has odd characters$") as caught:
        Http("http://localhost", "TOY_KEY")
    assert KEY not in "".join(traceback.format_exception(caught.value))


def test_a_wrong_key_is_refused_in_one_sentence(distributions, monkeypatch):
    monkeypatch.setenv("TOY_KEY", "wrong")
    with (
        standing(distributions[1], key=KEY) as server,
        pytest.raises(UserError, match=r"refuses \(401\): Unauthorized.*check the URL and"),
    ):
        ensemble(server, models=["llama"], server_key="TOY_KEY")


def test_the_key_is_sent_and_appears_nowhere(distributions, monkeypatch, caplog):
    monkeypatch.setenv("TOY_KEY", f"{KEY}\n")
    caplog.set_level(logging.DEBUG)
    with standing(distributions[1], key=KEY) as server:
        there = ensemble(server, models=["llama"], server_key="TOY_KEY")
        assert server.keys == {f"Bearer {KEY}"}
        results = there.generate(["a"], method="single", max_new_tokens=4)
        server.fault = times("broken", 1000)
        results += there.generate(["b"], method="single", max_new_tokens=4)
        server.stop()
        results += there.generate(["c"], method="single", max_new_tokens=4)
    (model,) = there.models
    assert [result.error is None for result in results] == [True, False, False]
    shown = (results, [result.traceback for result in results], model, model.description, there)
    assert KEY not in "".join(map(repr, shown)) + caplog.text + str(vars(model.server.http))


def test_the_pause_is_the_one_that_a_server_names(server, monkeypatch):
    monkeypatch.setattr("adafuse.servers.http.LONGEST_PAUSE", 0.05)
    server.retry, server.fault = "30", times("busy", 2)
    start = time.monotonic()
    ask(Http(server.url))
    assert time.monotonic() - start >= 0.1
