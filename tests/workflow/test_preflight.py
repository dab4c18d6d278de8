"""What `adafuse preflight` finds of a machine and a configuration."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from adafuse.config.reading import parse_config
from adafuse.workflow import preflight
from adafuse.workflow.preflight import Check
from tests.conftest import toy_path
from tests.support.hub import TOKEN, Hub, standing_hub
from tests.support.hub_cache import COMMIT, cached_model


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Outside of a Slurm job, on a machine without Slurm and GPUs."""
    for name in [name for name in os.environ if name.startswith("SLURM")] + ["HF_TOKEN"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("shutil.which", lambda name, **_: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that is asked."""
    with standing_hub({}) as hub:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        yield hub


def found(name: str, values: dict[str, Any] | None = None) -> list[Check]:
    config = None if values is None else parse_config(values)
    return [check for check in preflight.preflight(config) if check.name == name]


def one(name: str, values: dict[str, Any] | None = None) -> Check:
    (check,) = found(name, values)
    return check


def test_without_a_gpu_slurm_or_configuration_each_is_said_and_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    checks = preflight.preflight(None)
    assert not [check for check in checks if check.status == "fail"]
    texts = {check.name: check.text for check in reversed(checks)}
    assert "no Slurm here" in texts["node"]
    assert texts["gpu"].startswith("none (")
    assert f"torch {torch.__version__}" in texts["versions"]
    assert texts["results"].startswith(f"{tmp_path} (")
    assert " MB/s; a small file" in texts["writing"]
    assert texts["hub"] == "offline mode (HF_HUB_OFFLINE is set)"
    assert list(tmp_path.iterdir()) == [], "nothing is left"


def test_gpus_that_a_job_asks_for_and_does_not_get_fail_and_on_a_login_node_warn(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    values["decode"] = {"device": "auto", "gpu": 2}
    check = one("gpu", values)
    assert check.status == "fail"
    assert "0 of the 2 that a job asks for; ask for more, or lower decode.gpu" in check.text
    monkeypatch.setattr("shutil.which", lambda name, **_: f"/usr/bin/{name}")
    check = one("gpu", values)
    assert (check.status, "Slurm job with --gpus=2" in check.text) == ("warn", True)
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    assert one("gpu", values).status == "fail"
    assert "Slurm job 12" in one("node", values).text


class FakeCards:
    """GPUs on which the CPU computes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int, free: int) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda card: "Toy 8 GB")
        monkeypatch.setattr(preflight, "free_memory", lambda card: free)
        monkeypatch.setattr(torch, "ones", lambda *sizes, device: torch.full(sizes, 1.0))
        monkeypatch.setattr("adafuse.models.installation._devices", lambda: ())


def test_each_gpu_computes_and_weights_that_do_not_fit_fail(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = tmp_path / "version"
    driver.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release\n"
    )
    monkeypatch.setattr(preflight, "_DRIVER", driver)
    values["decode"] = {"device": "auto", "gpu": 1}
    values["models"]["left"]["path"] = toy_path("llama")
    FakeCards(monkeypatch, count=2, free=10**12)
    first, second = found("gpu", values)
    assert first.text.startswith("cuda:0, driver 580.95.05, ") and "Toy 8 GB" in first.text
    assert (first.status, second.status) == ("ok", "ok")
    FakeCards(monkeypatch, count=1, free=1000)
    fails = [check.text for check in found("gpu", values) if check.status == "fail"]
    assert [text.partition(" take ")[0] for text in fails] == [
        "the weights of run 'left'",
        "the weights of run 'both'",
    ]


def test_a_gpu_without_a_kernel_fails_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCards(monkeypatch, count=1, free=0)

    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("CUDA error: no kernel image is available\nmore")

    monkeypatch.setattr(torch, "ones", fails)
    check = one("gpu")
    assert check.status == "fail"
    assert "CUDA error: no kernel image is available; it does not compute" in check.text


def test_a_driver_that_is_too_old_fails_and_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(card: Any) -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040).")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", fails)
    check = one("gpu")
    assert (check.status, "is too old (found version 11040)" in check.text) == ("fail", True)


def test_a_results_folder_that_cannot_be_written_fails(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    check = one("writing", values)
    assert (check.status, "No space left on device; name" in check.text) == ("fail", True)


def test_slow_disks_full_disks_and_wrong_clocks_warn(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "_SLOW", 1e9)
    assert "; name a faster file system" in one("writing", values).text
    monkeypatch.setattr(preflight, "_TIGHT", 1e9)
    check = one("results", values)
    assert (check.status, check.text.endswith("GB free; make room")) == ("warn", True)
    now = preflight.time.time()
    monkeypatch.setattr(preflight.time, "time", lambda: now - 1000)
    assert "the clock of the file system differs by 1" in one("writing", values).text


def test_what_is_missing_fails_offline_and_is_a_warning_where_the_hub_gives_it(
    values: dict[str, Any], hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories["models/org/name"] = None
    counted, missing = found("needs", values)
    assert counted.text == "0 of 1 models and data sets of the hub are here"
    sentence = "model org/name (abc) is missing; run `snakemake prefetch` where there is a network"
    assert (missing.status, missing.text) == ("warn", sentence)
    hub.closed = frozenset({"models/org/name"})
    _, gated = found("needs", values)
    assert (gated.status, "is gated; accept its terms" in gated.text) == ("fail", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert found("needs", values)[1] == Check("needs", "fail", sentence)


def test_what_is_here_is_counted_and_warned_of_without_a_revision(
    values: dict[str, Any], tmp_path: Path
) -> None:
    cached_model(tmp_path / "cache", "org/name", toy_path("llama"))
    values["models"]["hub"]["revision"] = COMMIT
    assert one("needs", values).text == "1 of 1 models and data sets of the hub are here"
    values["models"]["hub"]["revision"] = None
    assert found("needs", values)[1].text.startswith("model org/name (no revision); run `adafuse")
    (cached_model(tmp_path / "cache", "org/torn", toy_path("llama")) / "model.safetensors").unlink()
    values["models"]["hub"]["path"] = "org/torn"
    assert found("needs", values)[1].status == "fail", "its weights are not here"


def test_the_hub_is_asked_about_the_token_which_is_never_shown(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert one("token").text.startswith("none; only gated")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    check = one("token")
    assert (check.status, check.text) == (
        "fail",
        "the hub does not know it; make a new one and set HF_TOKEN",
    )
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    checks = preflight.preflight(None)
    assert Check("token", "ok", "the hub knows it") in checks
    assert Check("hub", "ok", checks[-2].text) == checks[-2]
    assert TOKEN not in str(checks)


def test_a_hub_that_does_not_answer_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    check = one("hub")
    assert (check.status, check.text.endswith("export HF_HUB_OFFLINE=1")) == ("warn", True)
