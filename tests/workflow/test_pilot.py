"""A pilot tells what decoding takes, and its rows are not decoded again."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from adafuse.benchmarks.shards import write_shard
from adafuse.engine import scheduler
from adafuse.errors import UserError
from adafuse.storage.parquet import read_metadata
from adafuse.workflow import pilot
from adafuse.workflow.decode import decode_shard, ensemble_decoder
from adafuse.workflow.forecast import Measured, forecast
from adafuse.workflow.pilot import Pilot, Span, cost, read_pilot, take_pilots
from adafuse.workflow.plan import Plan
from adafuse.workflow.stamps import write_stamp
from adafuse.workflow.steps import Job
from tests.conftest import toy_path

from .conftest import ROOT

SIZE = 20
MEASURES: dict[str, Callable[[torch.Tensor], int]] = {
    "forward passes": lambda states: 1,
    "tokens": lambda states: states.shape[0] * states.shape[1],
}
"""What takes time: each forward pass as much as another, as on a GPU; or each token in one."""


@pytest.fixture
def toy(tmp_path: Path) -> dict[str, Any]:
    """A part of config/toy.yaml, with results of its own."""
    tasks = {"toy_qa": {}, "toy_en_de": {"shards": 2, "timed": True}}
    return {
        "results": str(tmp_path / "results"),
        "models": {name: {"path": toy_path(name)} for name in ("mistral", "llama")},
        "benchmarks": {
            name: {"use": str(ROOT / f"config/benchmarks/{name}.yaml"), **more}
            for name, more in tasks.items()
        },
        "runs": {
            "mistral": {"method": "single", "models": ["mistral"]},
            "llama": {"method": "single", "models": ["llama"]},
            "both": {"method": "adafuse", "models": ["mistral", "llama"]},
            "rerank": {"method": "rerank", "models": ["mistral", "llama"]},
        },
        "decode": {"device": "cpu", "gpu": 0, "batch_size": 8},
    }


@pytest.fixture
def clock(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], float]]:
    """A clock that goes by what the networks compute: the time of a busy machine tells nothing."""
    ticks, size = [0.0], MEASURES[request.param]

    def tick(module: torch.nn.Module, given: Any, output: Any) -> None:
        if isinstance(module, PreTrainedModel):
            ticks[0] += size(output[0])

    def now() -> float:
        return ticks[0]

    live = scheduler._Live
    monkeypatch.setattr(scheduler, "_Live", lambda *job: live(*job, started=now()))
    for module in (scheduler, pilot):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=now))
    hook = torch.nn.modules.module.register_module_forward_hook(tick)
    yield now
    hook.remove()


def decode(plan: Plan, benchmark: str, run: str, shard: int) -> dict[str, Any]:
    """Decode a shard as its job does; return what its trace says."""
    rows, out = (place(benchmark, *cell) for place, cell in (
        (plan.layout.shard_rows, (shard,)), (plan.layout.shard_trace, (run, shard))
    ))  # fmt: skip
    write_shard(rows, plan.shard(benchmark, shard))
    digest = plan.digest(benchmark, run, shard)
    timed = plan.config.benchmarks[benchmark].timed
    traces = None if timed else plan.layout.traces
    job = plan.decode_job(benchmark, run)
    decode_shard(job, shard, rows, out, digest=digest, decoder=ensemble_decoder, traces=traces)
    write_stamp(out, digest)
    return read_metadata(out)


def expected(plan: Plan, benchmark: str, run: str, shard: int, gpu: int = 0) -> Any:
    asked = {"gpu": gpu, "mem_mb": 7000, "runtime": 30}
    return forecast(plan, Job.of("decode", benchmark, run, shard), asked, Measured(plan))


@pytest.mark.soak
@pytest.mark.parametrize(
    ("clock", "benchmark"),
    [("forward passes", "toy_qa"), ("tokens", "toy_en_de")],
    indirect=["clock"],
)
def test_what_is_likely_after_a_pilot_is_within_a_quarter_of_what_decoding_takes(
    toy: dict[str, Any], clock: Callable[[], float], benchmark: str
) -> None:
    plan = Plan.of(toy)
    for cell, found in take_pilots(plan, [(benchmark, "llama"), (benchmark, "both")], SIZE):
        assert isinstance(found, Pilot) and found.full
        told = expected(plan, *cell, 0)
        before = clock()
        metadata = decode(plan, *cell, 0)
        taken_over = 0 if benchmark == "toy_en_de" else SIZE  # which is timed
        assert metadata["reused"] == taken_over
        assert told.rows == len(plan.shard(benchmark, 0)) - taken_over
        assert told.likely * 3600 == pytest.approx(clock() - before, rel=0.25), cell


def test_answers_that_a_run_starts_from_are_decoded_first(toy: dict[str, Any]) -> None:
    plan = Plan.of(toy)
    found = dict(take_pilots(plan, [("toy_qa", "rerank")], SIZE))
    assert [run for _, run in found] == ["llama", "mistral", "rerank"]
    rows = max(SIZE, 2 * 8)
    assert all(len(each.digests) == rows and each.memory_mb > 0 for each in found.values())
    assert {cell: read_pilot(plan, cell) for cell in found} == found
    traces = [plan.layout.pilot(*cell) for cell in found]
    sizes = [each.row_bytes * rows for each in found.values()]
    assert sizes == [path.stat().st_size for path in traces]


def test_a_pilot_of_other_settings_or_another_device_tells_nothing(toy: dict[str, Any]) -> None:
    plan, cell = Plan.of(toy), ("toy_qa", "llama")
    ((_, found),) = take_pilots(plan, [cell], SIZE)
    assert expected(plan, *cell, 0).likely * 3600 == pytest.approx(found.seconds(80))
    assert expected(plan, *cell, 0, gpu=1).likely is None, "a CPU says nothing of a GPU"
    assert Measured(plan).knows(cell, 0) and not Measured(plan).knows(cell, 1)
    both, alone = (expected(plan, "toy_en_de", run, 0) for run in ("both", "llama"))
    assert both.likely / alone.likely == pytest.approx(both.low / alone.low)
    toy["benchmarks"]["toy_qa"]["max_new_tokens"] = 16
    other = expected(Plan.of(toy), *cell, 0)
    assert other.likely is None and other.rows == 100


def test_what_cannot_be_decoded_here_is_said_and_the_others_go_on(toy: dict[str, Any]) -> None:
    toy["models"]["hub"] = {"path": "org/absent"}
    toy["runs"]["far"] = {"method": "single", "models": ["hub"]}
    cells = [("toy_qa", run) for run in ("far", "llama")]
    found = {run: each for (_, run), each in take_pilots(Plan.of(toy), cells, SIZE)}
    assert "org/absent" in str(found["far"]) and isinstance(found["llama"], Pilot)
    toy["decode"] |= {"device": "auto", "gpu": 1}
    ((_, refused),) = take_pilots(Plan.of(toy), [("toy_en_de", "llama")], SIZE)
    if not torch.cuda.is_available():
        assert isinstance(refused, UserError)
        assert str(refused) == "its jobs use a GPU, which this machine does not have"


def test_rows_of_a_full_batch_tell_how_long_a_forward_pass_takes() -> None:
    # Two at a time, each forward pass a second; the start takes three, and the last row is alone.
    spans = [Span(3, 7, 4), Span(3, 5, 2), Span(5, 9, 4), Span(7, 9, 2), Span(9, 15, 6)]
    once, row, full = cost(spans)
    assert full and row == pytest.approx(18 / 5 / 2)
    assert once == pytest.approx(15 - 5 * row)
    # All begin at once: no batch is known to be full.
    assert cost([Span(1, 3, 2), Span(1, 5, 4)]) == (1, 2, False)
    # A ranker of whole answers takes them one after the other.
    assert cost([Span(1, 3, 0), Span(3, 5, 0)]) == (1, 2, True)
