import shutil

import pytest

from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from tests.conftest import toy_path
from tests.support.stand_in import ensemble, standing

pytestmark = pytest.mark.usefixtures("no_pauses")


def test_a_model_on_a_server_has_its_tokenizer_and_its_smaller_context(pair, distributions):
    with standing(distributions[1], context=100) as server:
        (model,) = ensemble(server, models=["llama"]).models
    here = pair.models[1]
    assert model.prompt_ids("a dog") == here.prompt_ids("a dog")
    assert (model.vocabulary, model.end_ids) == (here.vocabulary, here.end_ids)
    assert model.context == 99


def test_what_a_server_says_of_itself_is_the_description(distributions):
    with standing(distributions[1]) as server:
        (model,) = ensemble(server, models=["llama"]).models
    expected = {"engine": "vllm", "version": "0.32.0", "model": "toy", "context": 512}
    assert expected.items() <= model.description.items()


def test_a_server_with_another_tokenizer_is_refused(distributions):
    with (
        standing(distributions[0]) as server,
        pytest.raises(UserError, match=r"reads .* as the ids .*; give the path of the"),
    ):
        ensemble(server, models=["llama"])


def test_a_server_with_fewer_ids_is_refused(distributions, monkeypatch):
    monkeypatch.setattr(distributions[1], "rows", 700)
    with (
        standing(distributions[1]) as server,
        pytest.raises(UserError, match=r"has 1280 ids, but .* is out of vocabulary; give the"),
    ):
        ensemble(server, models=["llama"])


def test_a_server_that_does_not_tokenize_is_taken(distributions, monkeypatch):
    with standing(distributions[1]) as server:
        whole = server.answer

        def answer(path, body, key):
            return {} if path == "/tokenize" else whole(path, body, key)

        monkeypatch.setattr(server, "answer", answer)
        assert ensemble(server, models=["llama"]).models


def test_there_is_one_server_for_each_model(distributions):
    with (
        standing(distributions[1]) as server,
        pytest.raises(UserError, match="server: 1 given for 2 models; give one per model"),
    ):
        ensemble(server)


def test_two_models_that_are_one_on_its_server_are_refused(distributions, tmp_path):
    shutil.copytree(toy_path("llama"), tmp_path / "other")
    paths = [toy_path("llama"), str(tmp_path / "other")]
    with standing(distributions[1]) as server:
        urls = [server.url, f"{server.url}/v1/"]
        with pytest.raises(UserError, match=rf"^'.*llama' and '.*other' are both .* {server.url};"):
            Ensemble.from_pretrained(paths, server=urls)
        assert Ensemble.from_pretrained(paths[:1] * 2, server=urls)  # one model in two ways
