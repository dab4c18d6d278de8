"""The section `serve` of a model: what it starts, and what is refused."""

from pathlib import Path

import pytest

from adafuse.config.runs import ModelConfig
from adafuse.config.serve import BY_WORKFLOW
from adafuse.errors import UserError
from adafuse.options import parse
from adafuse.servers.registry import SERVERS
from adafuse.servers.server import Server

VLLM = {"engine": "vllm", "command": "/envs/vllm/bin/vllm"}


def model(serve: object, **settings: object) -> ModelConfig:
    return parse(ModelConfig, {"path": "org/model", "serve": serve} | settings, "models.m")


def words(read: ModelConfig) -> list[str]:
    assert read.serve is not None
    return read.serve.words(read, "0.0.0.0", "8000")


def test_vllm_writes_spans_and_gets_the_arguments_last() -> None:
    serve = {**VLLM, "gpus": 2, "args": ["--max-model-len", 4096, "--swap", 0.5]}
    assert words(model(serve, revision="abc", trust_remote_code=True)) == [
        *("/envs/vllm/bin/vllm", "serve", "org/model", "--host", "0.0.0.0", "--port", "8000"),
        *("--revision", "abc", "--trust-remote-code", "--tensor-parallel-size", "2"),
        *("--enable-prefix-caching", "--enable-prompt-tokens-details"),
        *("--logits-processors", "vllm_processor:Spans"),
        *("--max-model-len", "4096", "--swap", "0.5"),
    ]


def test_llama_cpp_takes_a_file_or_finds_it_on_the_hub(tmp_path: Path) -> None:
    serve = {"engine": "llama.cpp", "command": "llama-server", "args": ["-np", 4]}
    (tmp_path / "q4.gguf").touch()
    rest = ["--host", "0.0.0.0", "--port", "8000", "-np", "4"]
    here = words(model(serve, path=f"{tmp_path}/q4.gguf"))
    assert here == ["llama-server", "--model", f"{tmp_path}/q4.gguf", *rest]
    there = words(model(serve, path="org/name/q4.gguf"))
    assert there == ["llama-server", "--hf-repo", "org/name", "--hf-file", "q4.gguf", *rest]


def test_the_stored_configuration_is_read_as_it_was() -> None:
    read = model({**VLLM, "args": ["--dtype", "float32"]})
    assert read.server == BY_WORKFLOW
    assert parse(ModelConfig, read.model_dump(mode="json")) == read


@pytest.mark.parametrize(
    ("serve", "settings", "sentence"),
    [
        ({**VLLM, "engine": "vlm"}, {}, "unknown engine 'vlm'; known are: vllm, llama.cpp"),
        ({"engine": "vllm"}, {}, "serve has no 'command'; add it"),
        ({**VLLM, "gpu": 2}, {}, "unknown key 'gpu'; known are: engine, command, gpus, args"),
        ({**VLLM, "args": [True]}, {}, "args.0 must be a valid string, not True"),
        ({**VLLM, "args": ["--port", 8000]}, {}, "'--port' is what the workflow sets itself"),
        ({**VLLM, "args": ["--host=::"]}, {}, "'--host=::' is what the workflow sets itself"),
        ({**VLLM, "engine": "llama.cpp"}, {}, "'org/model' is not a GGUF file"),
        (VLLM, {"path": "org/name/q4.gguf"}, "is a GGUF file; serve it with engine llama.cpp"),
        (VLLM, {"server": "http://a:1"}, "has both `server` and `serve`; leave out one of them"),
        (VLLM, {"device": "cpu"}, "device 'cpu' changes nothing in a model on a server"),
    ],
)
def test_what_cannot_be_started_is_refused(
    serve: object, settings: dict[str, object], sentence: str
) -> None:
    with pytest.raises(UserError, match=r"models\.m") as refused:
        model(serve, **settings)
    assert sentence in str(refused.value)


def test_a_kind_of_another_package_says_whether_it_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Other(Server):
        engine = "other"

    monkeypatch.setattr("adafuse.servers.registry.SERVERS", [*SERVERS, Other])
    with pytest.raises(UserError, match="cannot start servers of other; start it yourself"):
        model({**VLLM, "engine": "other"})
