"""Other evaluators that talk to the server as they would to any other."""

import json

import pytest

from tests.conftest import TOY_MODELS, toy_path
from tests.lm_eval.tasks import QA, task, texts
from tests.serve.conftest import in_a_thread

MODELS = f"{toy_path('mistral')}+{toy_path('llama')}"


def test_the_harness_finds_with_the_server_what_it_finds_with_the_plug_in(
    server, tmp_path, monkeypatch
):
    harness = pytest.importorskip("lm_eval", reason="needs adafuse[lm-eval]")
    from lm_eval.tasks import TaskManager

    from adafuse.lm_eval.register import register

    register()
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    manager = TaskManager(include_defaults=False)

    def found(name, **arguments):
        results = in_a_thread(
            harness.simple_evaluate,
            model=name,
            model_args=arguments,
            tasks=[task(QA)],
            task_manager=manager,
            limit=12,
            bootstrap_iters=0,
        )
        (samples,), (scores,) = results["samples"].values(), results["results"].values()
        return texts(samples), {k: v for k, v in scores.items() if not k.startswith("alias")}

    url = f"{server.url}/v1/completions"
    served = found(
        "local-completions", model="adafuse", base_url=url, tokenized_requests=False,
        tokenizer_backend=None, num_concurrent=4,
    )  # fmt: skip
    assert served == found("adafuse", models=MODELS, device="cpu")


@pytest.mark.soak
def test_inspect_reads_chat_completions(server, tmp_path, pair, monkeypatch):
    inspect = pytest.importorskip("inspect_ai", reason="inspect_ai is not installed")
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.scorer import includes
    from inspect_ai.solver import generate

    rows = (TOY_MODELS.parent / "benchmarks/development/toy_qa.jsonl").read_text().split("\n")[:8]
    asked = [json.loads(row) for row in rows]
    samples = [Sample(input=row["question"], target=row["answer"]) for row in asked]
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.chdir(tmp_path)
    (log,) = in_a_thread(
        inspect.eval,
        inspect.Task(dataset=MemoryDataset(samples), solver=generate(), scorer=includes()),
        model="openai-api/adafuse/adafuse",
        model_base_url=f"{server.url}/v1",
        model_args={"api_key": "none"},
        max_tokens=16,
        display="none",
    )
    assert log.status == "success"
    messages = [[{"role": "user", "content": row["question"]}] for row in asked]
    wanted = [result.text for result in pair.generate(messages, max_new_tokens=16)]
    assert [sample.output.completion for sample in log.samples] == wanted
