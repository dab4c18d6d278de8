"""What decode jobs ask a cluster for."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snakemake_executor_plugin_slurm.submit_string import get_submit_command
from snakemake_executor_plugin_slurm.utils import set_gres_string

from adafuse.config.reading import parse_config
from adafuse.config.runs import ClusterConfig, JobSize
from adafuse.decoding.words import Settings
from adafuse.errors import UserError
from adafuse.models.spec import DeviceName, ModelSpec
from adafuse.workflow import jobs as cluster
from adafuse.workflow.jobs import (
    DecodeJob,
    Resources,
    estimate,
    gpus,
    loaded,
    memory_mb,
    runtime,
)
from adafuse.workflow.plan import Plan

ROOT = Path(__file__).parents[2]

EIGHT_BILLION = 16e9
NAMES = ("auto", "cpu", "cuda", "cuda:3", "cuda:1+cuda:2", "balanced", "sequential")

sizes = st.lists(st.floats(1e6, 2e11), min_size=1, max_size=4)


def model(path: str, **loading: Any) -> ModelSpec:
    return ModelSpec(path=path, **{"dtype": "bfloat16", **loading})


def job(*devices: str, **changes: Any) -> DecodeJob:
    plain = DecodeJob(
        benchmark="qa",
        run="both",
        models=tuple(model(f"org/{n}", device=device) for n, device in enumerate(devices)),
        weights=None,
        method="adafuse",
        options={},
        checkpoints={},
        settings=Settings(max_new_tokens=512, batch_size=changes.pop("batch_size", 32)),
    )
    return replace(plain, **changes)


@pytest.mark.parametrize(
    ("devices", "most", "wanted"),
    [
        (("auto",), 4, 1),
        (("auto", "auto"), 4, 2),
        (("auto", "auto"), 1, 1),
        (("cuda:0", "cuda:0"), 4, 1),
        (("cuda:0", "cuda:1"), 4, 2),
        (("cuda:1", "auto"), 4, 2),
        (("cuda:0+cuda:1", "cuda:2"), 4, 3),
        (("cuda", "cuda"), 4, 1),
        (("balanced",), 4, 4),
        (("sequential", "cuda:0"), 4, 4),
        (("auto", "cpu"), 4, 1),
        (("cpu", "cpu"), 1, 1),
        (("cuda:1", "auto"), 0, 0),
    ],
)
def test_a_job_asks_for_the_gpus_that_its_models_are_put_on(
    devices: tuple[str, ...], most: int, wanted: int
) -> None:
    assert gpus(job(*devices), most) == wanted


def on_servers(*names: str, **changes: Any) -> DecodeJob:
    """A job of two models on one GPU each, of which some are on servers."""
    servers = dict.fromkeys(names, "http://node7:8000")
    plain = [model(name, device="auto", server=servers.get(name)) for name in ("a", "b")]
    return job(**{"models": tuple(plain), **changes})


def test_models_on_servers_need_no_gpu_and_no_memory_and_are_not_read() -> None:
    assert [gpus(on_servers(*names), 4) for names in ((), ("a",), ("a", "b"))] == [2, 1, 0]
    assert estimate(on_servers("a", "b"), 10, sized(2)) == Resources(0, 6000, 30)
    assert estimate(on_servers("a"), 10, sized(2)).mem_mb == 30_000
    slow = estimate(on_servers("a", "b"), 10_000, sized(0)).runtime
    assert slow > estimate(on_servers("a", "b"), 100, sized(0)).runtime
    assert slow < estimate(on_servers(), 10_000, sized(0)).runtime
    own = JobSize(gpu=1, mem_mb=7)
    assert estimate(on_servers("a", "b"), 10, sized(2, own=own)) == Resources(1, 7, 30)


def test_checkpoints_are_loaded_where_models_on_servers_would_be() -> None:
    whole = blender()
    served = on_servers("a", "b", method=whole.method, checkpoints=whole.checkpoints)
    assert loaded(served) == loaded(whole)
    assert gpus(served, 4) == 1


def blender() -> DecodeJob:
    checkpoints = {name: model(f"org/{name}") for name in ("ranker", "fuser")}
    return job("auto", "auto", method="llm_blender", checkpoints=checkpoints)


def test_a_method_that_starts_from_answers_needs_room_for_its_own_checkpoints_only() -> None:
    assert [each.path for each in loaded(blender())] == ["org/ranker", "org/fuser"]
    assert gpus(blender(), 4) == 1
    assert [each.path for each in loaded(job("auto", "auto"))] == ["org/0", "org/1"]


def test_weights_pass_through_memory_to_a_gpu_one_after_the_other_and_stay_without_one() -> None:
    pair = [EIGHT_BILLION, EIGHT_BILLION]
    assert memory_mb(pair, cards=1) == memory_mb(pair[:1], cards=1) == 30_000
    assert memory_mb(pair, cards=0) == 54_000
    assert memory_mb([5e6], cards=0) == 7_000


def test_two_models_of_8_billion_parameters_have_half_an_hour_for_82_long_answers() -> None:
    pair = [EIGHT_BILLION, EIGHT_BILLION]
    assert runtime(job("auto", "auto"), pair, rows=82, cards=1) == 60
    assert runtime(job("auto", "auto", batch_size=1), pair, rows=82, cards=1) == 250
    assert runtime(job("auto", batch_size="auto"), [5e6], rows=82, cards=0) == 30


@given(sizes, st.floats(1e6, 2e11), st.integers(1, 3000), st.integers(0, 4))
def test_more_models_and_more_rows_never_ask_for_less(
    weights: list[float], another: float, rows: int, cards: int
) -> None:
    more = [*weights, another]
    assert memory_mb(weights, cards) <= memory_mb(more, cards)
    few, many = runtime(job("auto"), weights, rows, cards), runtime(job("auto"), more, rows, cards)
    assert few <= many
    assert few <= runtime(job("auto"), weights, rows + 100, cards)


def test_each_attempt_asks_for_more_up_to_what_the_partition_gives() -> None:
    asked, free = Resources(1, 30_000, 60), ClusterConfig()
    for attempt in (1, 2, 3):
        again = Resources(1, 30_000 * attempt, 60 * attempt)
        assert asked.for_attempt(attempt, free) == again
    limits = ClusterConfig(max_mem_mb=64_000, max_runtime=100)
    found = [asked.for_attempt(attempt, limits) for attempt in (1, 2, 3)]
    assert [each.mem_mb for each in found] == [30_000, 60_000, 64_000]
    assert [each.runtime for each in found] == [60, 100, 100]


def sized(gpu: int, **sections: Any) -> Any:
    """What estimates read of a configuration."""
    given = {"cluster": ClusterConfig(), "own": JobSize()} | sections
    runs = {"both": SimpleNamespace(cluster=given["own"])}
    return SimpleNamespace(decode=SimpleNamespace(gpu=gpu), cluster=given["cluster"], runs=runs)


def test_what_the_user_says_goes_before_estimates_and_a_run_before_the_rest() -> None:
    def asked(**sections: Any) -> Resources:
        return estimate(job("auto", "auto"), 10, sized(2, **sections))

    assert asked() == Resources(2, 30_000, 30)
    assert asked(cluster=ClusterConfig(mem_mb=5, runtime=6)) == Resources(2, 5, 6)
    own = JobSize(gpu=3, mem_mb=7)
    assert asked(cluster=ClusterConfig(mem_mb=5, runtime=6), own=own) == Resources(3, 7, 6)
    assert asked(own=JobSize(gpu=0)).gpu == 0


def test_a_model_that_is_not_here_counts_as_one_of_8_billion_parameters() -> None:
    assert cluster.model_bytes(model("org/name")) == EIGHT_BILLION
    assert cluster.model_bytes(model("org/name", dtype="float32")) == 2 * EIGHT_BILLION


def test_quantized_weights_need_less_memory_and_are_read_whole() -> None:
    def asked(*quantization: str | None) -> Resources:
        models = [model("org/0", device="cpu", quantization=how) for how in quantization]
        return estimate(job(models=tuple(models)), 10, sized(0))

    assert cluster.model_bytes(model("org/0", dtype="float32", quantization="int8")) == 8e9
    assert asked(None, None).mem_mb == 54_000
    assert asked("int8", None).mem_mb == 42_000
    assert asked("int8", "int4").mem_mb == 25_000
    assert len({asked(*each).runtime for each in ((None, None), ("int8", "int4"))}) == 1


@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4), st.integers(0, 8))
def test_no_job_asks_for_more_than_it_may_or_for_fewer_than_its_devices(
    devices: list[str], most: int
) -> None:
    asked = gpus(job(*devices), most)
    assert asked <= most
    assert asked >= min(most, max(DeviceName.parse(each).gpus for each in devices))


def test_jobs_of_a_uniform_configuration_ask_for_the_same(values: dict[str, Any]) -> None:
    values["runs"]["both"]["cluster"] = {"mem_mb": 90_000, "runtime": 5}
    cells = [("qa", run, shard) for run in ("left", "both") for shard in (0, 1)]
    own = Plan.of(values)
    assert len({own.resources(*cell) for cell in cells}) == 2
    uniform = Plan.of(values | {"cluster": {"uniform": True}})
    (asked,) = {uniform.resources(*cell) for cell in cells}
    assert asked.mem_mb == 90_000
    assert asked.runtime == max(own.resources(*cell).runtime for cell in cells)
    assert uniform.resources("qa", "both", 0, attempt=2).mem_mb == 180_000


def test_every_run_of_a_sweep_asks_for_what_the_sweep_says(values: dict[str, Any]) -> None:
    values["runs"]["both"] |= {"options": {}, "sweep": {"tau": [0.1, 0.2]}, "cluster": {"gpu": 3}}
    config = parse_config(values)
    assert {config.runs[f"both_{tau}"].cluster.gpu for tau in (0.1, 0.2)} == {3}


def test_a_misspelt_size_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="unknown key 'memory'"):
        parse_config(values | {"cluster": {"memory": 3}})


def test_what_jobs_ask_for_changes_no_digest(values: dict[str, Any], tmp_path: Path) -> None:
    before = Plan.of(values).digests("qa", "both")
    values["runs"]["both"]["cluster"] = {"gpu": 2}
    assert Plan.of(values | {"cluster": {"runtime": 9}}).digests("qa", "both") == before


def test_all_gpus_of_a_job_are_on_one_node() -> None:
    """Slurm may spread --gpus=2 over two nodes; of the second the job would see nothing."""
    rules = (ROOT / "workflow/rules/decode.smk").read_text().split("\nrule ")
    asking = [text for text in rules if re.search(r"^        gpu=", text, re.MULTILINE)]
    assert len(asking) == 2
    assert all(re.search(r"^        nodes=1,", text, re.MULTILINE) for text in asking)
    params = {"run_uuid": "x", "slurm_logfile": "x", "comment_str": "x", "account": "",
              "partition": "", "workdir": None}  # fmt: skip
    job = SimpleNamespace(resources=Asked(gpu=2, nodes=1), threads=1)
    command = get_submit_command(job, params) + set_gres_string(job)
    assert "--nodes=1" in command and "--gpus=2" in command


class Asked(dict[str, Any]):
    """Resources of a job, as Snakemake gives them to the plug-in."""

    __getattr__ = dict.__getitem__
