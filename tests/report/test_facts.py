"""What a run cost and where it came from, from its merged traces."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from adafuse.metrics.measures import cost
from adafuse.records.result import Candidate, Result, Round
from adafuse.report.contents import origin
from adafuse.storage.parquet import write_rows
from adafuse.storage.traces import RESULT_FIELDS, result_columns
from tests.support.made_up import FUSED

FIELDS = [pa.field("id", pa.string()), *RESULT_FIELDS]


def shard(**changes: Any) -> dict[str, Any]:
    job = {
        "models": [
            {"path": "org/a", "revision": "abc", "content": None},
            {"path": "b", "revision": None, "content": "123"},
        ],
        "weights": None, "method": "adafuse", "options": {"tau": 0.7}, "dtype": "float32",
        "devices": ["cpu", "cpu"], "quantization": [None, "int8"], "engine": "tree",
        "batch_size": 4, "max_new_tokens": 8, "stop": ["\n"],
    }  # fmt: skip
    described = {
        "job": job | changes, "versions": {"torch": "2.13", "bitsandbytes": None},
        "git": {"commit": "f00", "dirty": True}, "place": {"host": "node1"},
        "finished": "2026-11-20T10:00:00+00:00",
    }  # fmt: skip
    return described


def write(path: Path, numbers: list[int], metadata: dict[str, Any]) -> Path:
    rows = [{"id": str(n), **result_columns(replace(FUSED[n], seconds=float(n)))} for n in numbers]
    write_rows(path, FIELDS, rows, metadata)
    return path


def test_errors_are_counted_and_in_no_mean(tmp_path: Path) -> None:
    found = cost(write(tmp_path / "t.parquet", [1, 3, 5], {}), "qa", "run")
    assert (found.n, found.errors) == (3, 1)
    assert found.seconds is not None
    assert found.seconds.value == 2.0
    assert found.quartiles == (1.5, 2.0, 2.5)
    assert 1.0 <= found.seconds.low <= 2.0 <= found.seconds.high <= 3.0
    assert (found.tokens, found.forwards) == (17.0, 23.0)


def test_a_run_of_errors_has_no_means(tmp_path: Path) -> None:
    found = cost(write(tmp_path / "t.parquet", [5], {}), "qa", "run")
    assert (found.seconds, found.tokens, found.forwards) == (None, None, None)


def test_the_models_agree_where_all_propose_what_is_committed(tmp_path: Path) -> None:
    rounds = [
        Round((span(0, 1),), 0, 1, ()),
        Round((span(0), span(1)), 1, 1, ()),
        Round((span(1), span(0, 1)), 1, 1, ()),
        Round((span(0, 1),), None, 0, ()),  # nothing was committed
        Round((span(0), span(0, 1)), 0, 1, ()),
    ]
    results = [
        Result("x", "eos", tuple(part), (1, 1), (1, 1), (1, 1), 0.1)
        for part in (rounds[:2], [], rounds[2:])
    ]
    rows = [{"id": str(n), **result_columns(result)} for n, result in enumerate(results)]
    path = tmp_path / "t.parquet"
    write_rows(path, FIELDS, rows, {})
    assert cost(path, "qa", "run").agreed == 50
    write_rows(path, FIELDS, rows[1:2], {})
    assert cost(path, "qa", "run").agreed is None


def span(*proposers: int) -> Candidate:
    return Candidate("x", False, proposers, (1.0, 1.0), 1.0)


def test_the_origin_names_models_versions_and_commit(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", [1], {"shards": [shard(), shard()]})
    facts = origin([path])
    assert facts["models"] == ["org/a (abc); b (content 123)"]
    assert facts["weights"] == ["1, 1"]
    assert facts["quantization"] == ["none, int8"]
    assert facts["versions"] == ["torch 2.13"]
    assert facts["commit"] == ["f00 with changes"]
    assert facts["date"] == ["2026-11-20"]


def test_the_origin_shows_no_host_and_no_folder_of_the_machine(tmp_path: Path) -> None:
    models = [
        {"path": "/data/me/models/llama", "revision": None, "content": "12"},
        {"path": "../me/models/q4.gguf", "revision": None, "content": "34"},
        {"path": "/data/me/gone", "revision": None, "content": None},
        {"path": "org/a", "revision": "abc", "content": None},
    ]
    options = {"gate": "/data/me/my results/gate.json", "tau": 0.7}
    path = write(tmp_path / "t.parquet", [1], {"shards": [shard(models=models, options=options)]})
    facts = origin([path])
    names = "llama (content 12); q4.gguf (content 34); gone (not pinned); org/a (abc)"
    assert facts["models"] == [names]
    assert "gate.json" in facts["options"][0]
    assert not [part for part in ("node1", "/data", "me/", "my results") if part in str(facts)]


def test_the_origin_names_adapters(tmp_path: Path) -> None:
    adapter = {"path": "/data/me/law", "content": "56"}
    models = [{"path": "org/a", "revision": "abc", "content": None, "adapter": adapter}]
    path = write(tmp_path / "t.parquet", [1], {"shards": [shard(models=models)]})
    assert origin([path])["models"] == ["org/a (abc) + law (content 56)"]


def test_shards_that_differ_are_both_told(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", [1], {"shards": [shard(), shard(dtype="bfloat16")]})
    assert origin([path])["number type"] == ["float32", "bfloat16"]


def test_a_selection_tells_which_runs_its_rows_are_from(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", [1], {"method": "best_of", "rows_from": {"a": 3, "b": 1}})
    assert origin([path]) == {"rows from": ["a (3), b (1)"]}


@pytest.mark.parametrize("metadata", [{}, {"shards": []}])
def test_a_trace_that_tells_nothing_has_no_origin(tmp_path: Path, metadata: dict[str, Any]) -> None:
    assert origin([write(tmp_path / "t.parquet", [1], metadata)]) == {}
