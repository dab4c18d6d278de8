"""The harness itself, without its thousands of tasks, over tasks of the toy world."""

import pytest

from tests.lm_eval.tasks import MODELS


@pytest.fixture(scope="module")
def manager():
    """The tasks of the harness, of which there are none yet."""
    pytest.importorskip("lm_eval", reason="needs adafuse[lm-eval]")
    from lm_eval.tasks import TaskManager

    from adafuse.lm_eval.register import register

    register()
    return TaskManager(include_defaults=False)


@pytest.fixture
def evaluate(manager, tmp_path, monkeypatch):
    """Evaluate tasks; returns all results and the samples of the first task."""
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    # It asks pip for every package here, each time.
    monkeypatch.setattr("torch.utils.collect_env.get_pretty_env_info", str)
    import lm_eval as harness

    def run(*tasks, limit=4, **settings):
        arguments = {"models": MODELS, "batch_size": 4, **settings.pop("model_args", {})}
        results = harness.simple_evaluate(
            model=settings.pop("model", "adafuse"),
            model_args=arguments,
            tasks=list(tasks),
            task_manager=manager,
            limit=limit,
            bootstrap_iters=0,
            **settings,
        )
        return results, results["samples"][tasks[0]["task"]]

    return run
