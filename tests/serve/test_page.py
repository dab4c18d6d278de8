"""The live page: what the server answers for it."""

import re

from adafuse.serve.page import FILES
from tests.serve.conftest import PROMPT, completed

KEY = {"Authorization": "Bearer secret"}


def test_the_page_and_its_files_need_no_key_and_what_it_asks_needs_one(serving):
    with serving(api_key="secret") as client:
        for path in FILES:
            answer = client.get(path)
            assert answer.status_code == 200
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
            assert "unsafe" not in policy
        for path in ("/live/setup", "/live/traces/x"):
            assert client.get(path).status_code == 401
        assert client.get("/live/setup", headers=KEY).status_code == 200


def test_the_page_loads_what_the_server_has_and_nothing_else(client):
    page = client.get("/").text
    assert {f"/{path}" for path in re.findall(r'(?:src|href)="(assets/[^"]*)"', page)} == (
        FILES.keys() - {"/"}
    )
    assert not re.search(r"https?://|<script>|style=|onclick", page)
    assert client.get("/assets/../app.py").status_code == 404


def test_a_page_of_another_host_gets_nothing(serving):
    with serving(hosts=("127.0.0.1",)) as client:
        for path in ("/", "/live/setup"):
            assert client.get(path, headers={"Host": "evil.example"}).status_code == 403
            assert client.get(path, headers={"Host": "localhost"}).status_code == 200


def test_without_the_page_its_paths_are_not_there(serving):
    with serving(page=False) as client:
        for path in (*FILES, "/live/setup", "/live/traces/x"):
            assert client.get(path).status_code == 404


def test_the_page_offers_what_a_request_may_name(serving, pair):
    with serving(options={"branching": 3}) as client:
        setup = client.get("/live/setup").json()
        assert setup["models"] == [model.name for model in client.service.ensemble.models]
        methods = setup["methods"]
        assert "llm_blender" not in methods
        own = methods["adafuse"]
        assert own["threshold"] == "tau"
        assert own["options"]["branching"]["value"] == 3
        assert own["options"]["margin"]["choices"] == ["start", "word"]
        assert "gate" not in own["options"]
        for name, method in methods.items():
            values = {option: each["value"] for option, each in method["options"].items()}
            client.service.chosen(name, values)


def test_a_trace_is_found_by_its_id_in_the_journal_and_in_files(serving, tmp_path):
    with serving(traces=tmp_path / "traces") as client:
        name = f"{completed(client)['id']}-0"
        first = client.get(f"/live/traces/{name}").json()
        assert (first["prompt"], first["models"]) == (PROMPT, ["mistral", "llama"])
        assert first["rounds"]
    with serving(traces=tmp_path / "traces") as client:
        assert client.get(f"/live/traces/{name}").json() == first
        answer = client.get("/live/traces/cmpl-0")
        assert answer.status_code == 404
        assert "there is no trace 'cmpl-0'" in answer.json()["error"]["message"]
