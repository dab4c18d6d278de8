"""Decode jobs whose models are on standing servers."""

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from adafuse.benchmarks.shards import write_shard
from adafuse.errors import UserError
from adafuse.storage.journal import journal_rows
from adafuse.storage.parquet import read_metadata, read_rows
from adafuse.workflow.decode import decode_shard, decoder_of, ensemble_decoder, merge_shards
from adafuse.workflow.digest import reported_config
from adafuse.workflow.jobs import answer_runs
from adafuse.workflow.layout import ResultsLayout
from adafuse.workflow.plan import Plan
from adafuse.workflow.stamps import write_stamp
from tests.conftest import toy_path
from tests.support.stand_in import StandIn, impatient, standing

KEY = "ADAFUSE_TEST_KEY"
MODELS = ("mistral", "llama")


@pytest.fixture(autouse=True)
def no_pauses() -> Iterator[None]:
    with impatient():
        yield


@dataclass
class Results:
    """A small workflow whose decode jobs run in this process."""

    folder: Path
    servers: dict[str, dict[str, str]] = field(default_factory=dict)
    shards: int = 2
    rows: int = 8

    def values(self) -> dict[str, Any]:
        source = Path("adafuse/toy/benchmarks/toy_qa.jsonl").read_text().splitlines()
        (self.folder / "qa.jsonl").write_text("\n".join(source[: self.rows]) + "\n")
        task = {
            "source": {"file": str(self.folder / "qa.jsonl")},
            "prompt": "Question: {question}\nAnswer:",
            "stop": ["\n"],
            "max_new_tokens": 8,
            "scorer": "squad",
            "shards": self.shards,
        }
        singles = {name: {"method": "single", "models": [name]} for name in MODELS}
        fused = {name: {"method": name, "models": [*MODELS]} for name in ("adafuse", "rerank")}
        models = {n: {"path": toy_path(n), **self.servers.get(n, {})} for n in MODELS}
        return {
            "results": str(self.folder / "results"),
            "models": models,
            "benchmarks": {"qa": task},
            "runs": singles | fused,
            "decode": {"device": "cpu", "gpu": 0, "batch_size": 2},
        }

    @property
    def plan(self) -> Plan:
        return Plan.of(self.values())

    def trace(self, run: str, shard: int) -> Path:
        return ResultsLayout(self.folder / "results").shard_trace("qa", run, shard)

    def decode(self, run: str, shard: int = 0) -> Path:
        """Do what the step `decode` does, and return the trace."""
        plan, trace = self.plan, self.trace(run, shard)
        file = plan.layout.shard_rows("qa", shard)
        write_shard(file, plan.prepared("qa").shard(shard))
        answers = [self.trace(r, shard) for r in answer_runs(plan.config, run)]
        job, digest = plan.decode_job("qa", run), plan.digest("qa", run, shard)
        with decoder_of(job, ensemble_decoder) as (decoder, served):
            decode_shard(job, shard, file, trace, digest=digest, decoder=decoder, served=served,
                         answers=answers, traces=plan.layout.traces)  # fmt: skip
        write_stamp(trace, digest)
        return trace

    def merge(self, run: str) -> Path:
        plan = self.plan
        out = plan.layout.trace("qa", run)
        rows = [plan.layout.shard_rows("qa", shard) for shard in range(self.shards)]
        files = [self.trace(run, shard) for shard in range(self.shards)]
        merge_shards(files, plan.digests("qa", run), rows, out)
        write_stamp(out, "merged")
        return out


@pytest.fixture
def servers(distributions: Any) -> Iterator[dict[str, StandIn]]:
    with standing(distributions[0]) as first, standing(distributions[1]) as second:
        yield dict(zip(MODELS, (first, second), strict=True))


@pytest.fixture
def results(servers: dict[str, StandIn], tmp_path: Path) -> Results:
    return Results(tmp_path, {name: {"server": each.url} for name, each in servers.items()})


def texts(trace: Path) -> dict[str, tuple[str, str]]:
    return {row["id"]: (row["text"], row["stop_reason"]) for row in read_rows(trace)}


@pytest.mark.parametrize(
    ("local", "runs"), [((), ("llama", "mistral", "adafuse", "rerank")), (["mistral"], ["adafuse"])]
)
def test_the_rows_are_those_of_models_that_are_loaded(
    results: Results, tmp_path: Path, local: Sequence[str], runs: Sequence[str]
) -> None:
    (tmp_path / "here").mkdir()
    here = Results(tmp_path / "here")
    for name in local:
        del results.servers[name]
    for run in runs:
        assert texts(results.decode(run)) == texts(here.decode(run)), run


def test_a_trace_says_which_server_it_is_of_and_neither_where_nor_the_key(
    distributions: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, "sk-secret")
    with standing(distributions[1], key="sk-secret", name="the-llama") as server:
        entry = {"server": server.url, "server_key": KEY, "server_model": "the-llama"}
        results = Results(tmp_path, {"llama": entry})
        trace = results.decode("llama")
        results.plan.store_config()
        shown = json.dumps(reported_config(results.plan.config))
        port = str(server.port)
    metadata = read_metadata(trace)
    (served,) = metadata["served"]
    assert (served["engine"], served["version"], served["model"]) == ("vllm", "0.32.0", "the-llama")
    job = metadata["job"]
    assert (job["devices"], job["dtype"]) == (["server"], None)
    assert job["models"][0]["server_model"] == "the-llama"
    assert "the-llama" in shown and port not in shown and KEY not in shown
    assert port not in json.dumps(metadata) and KEY not in json.dumps(metadata)
    for file in filter(Path.is_file, (tmp_path / "results").rglob("*")):
        assert b"sk-secret" not in file.read_bytes(), file


def digest(folder: Path, **entry: str) -> str:
    return Results(folder, {"llama": entry} if entry else {}).plan.digest("qa", "llama", 0)


def test_a_plan_asks_no_server_and_does_not_change_where_one_moves(tmp_path: Path) -> None:
    first = digest(tmp_path, server="http://node1:8000")
    assert digest(tmp_path, server="https://node2/x", server_key="KEY") == first
    assert digest(tmp_path, server="http://node1:8000", server_model="l") != first
    assert digest(tmp_path) != first


def test_the_weights_of_a_served_model_are_not_needed_and_change_nothing(tmp_path: Path) -> None:
    results = Results(tmp_path, {"llama": {"server": "http://node1:8000"}})
    values, folder = results.values(), tmp_path / "llama"
    shutil.copytree(toy_path("llama"), folder)
    values["models"]["llama"]["path"] = str(folder)
    before = Plan.of(values).row_digests("qa", "llama", 0)
    (folder / "model.safetensors").unlink()
    assert Plan.of(values).row_digests("qa", "llama", 0) == before
    config = folder / "config.json"
    config.write_text(config.read_text() + "\n")
    assert Plan.of(values).row_digests("qa", "llama", 0) != before


def test_a_server_that_goes_away_ends_the_job_and_the_next_start_goes_on(
    results: Results, servers: dict[str, StandIn]
) -> None:
    trace = results.trace("adafuse", 0)
    journal = trace.with_suffix(".journal")
    servers["llama"].fault = lambda body: "broken" if journal_rows(journal) else None
    with pytest.raises(UserError) as error:
        results.decode("adafuse", 0)
    assert "\n" not in str(error.value)
    assert str(error.value) == (
        f"the server {servers['llama'].url} failed 9 times (HTTP status 500); see its log and run"
        " again: rows that are done are kept"
    )
    kept = journal_rows(journal)
    assert 0 < len(kept) < 5 and all(row["error"] is None for row in kept.values())
    servers["llama"].fault = lambda body: None
    results.decode("adafuse", 0)
    metadata = read_metadata(trace)
    assert (metadata["resumed"], metadata["failed"]) == (len(kept), 0)
    assert len(texts(trace)) == 5


def test_a_row_that_is_wrong_itself_fails_alone(distributions: Any, tmp_path: Path) -> None:
    with standing(distributions[1], context=40) as server:
        results = Results(tmp_path, {"llama": {"server": server.url}}, shards=1, rows=4)
        values = results.values()
        long = {"id": "long", "question": "Who? " * 60, "answer": "x"}
        rows = (tmp_path / "qa.jsonl").read_text().splitlines()
        (tmp_path / "qa.jsonl").write_text("\n".join([json.dumps(long), *rows[:3]]) + "\n")
        plan = Plan.of(values)
        file, trace = plan.layout.shard_rows("qa", 0), results.trace("llama", 0)
        write_shard(file, plan.prepared("qa").shard(0))
        job, wanted = plan.decode_job("qa", "llama"), plan.digest("qa", "llama", 0)
        with decoder_of(job, ensemble_decoder) as (decoder, served):
            decode_shard(job, 0, file, trace, digest=wanted, decoder=decoder, served=served)
    assert [row["id"] for row in read_rows(trace) if row["error"]] == ["long"]


def replaced(server: StandIn, distributions: Any) -> None:
    """Start another version of a model where a server was."""
    server.model = Changed(distributions)


class Changed:
    """Distributions of a model that was trained further."""

    def __init__(self, plain: Any) -> None:
        self._plain = plain
        self.rows, self.tokenizer = plain.rows, plain.tokenizer

    def after(self, ids: tuple[int, ...], count: int = 1) -> list[Any]:
        return [1.5 * logits for logits in self._plain.after(ids, count)]


def test_rows_of_another_model_are_decoded_again_and_never_merged_with_those_of_this_one(
    results: Results, servers: dict[str, StandIn], distributions: Any
) -> None:
    results.decode("llama", 0)
    replaced(servers["llama"], distributions[1])
    results.decode("llama", 1)
    with pytest.raises(UserError) as error:
        results.merge("llama")
    first, sentence = results.trace("llama", 0), str(error.value)
    assert "\n" not in sentence and sentence.count("'toy' on vllm 0.32.0 (context 512, log p(") == 2
    assert sentence.endswith(f"to decode again by the latter, delete {str(first)!r} and run again")
    first.unlink()
    results.decode("llama", 0)
    metadata = read_metadata(first)
    assert (metadata["resumed"], metadata["reused"]) == (0, 0)
    merged = results.merge("llama")
    assert len(texts(merged)) == 8
    # Rows of a merged trace are taken for another shard as long as the server is the same.
    first.unlink()
    assert read_metadata(results.decode("llama", 0))["reused"] == 5
    servers["llama"].model = distributions[1]
    first.unlink()
    assert read_metadata(results.decode("llama", 0))["reused"] == 0


def test_answers_of_another_server_are_refused(
    results: Results, servers: dict[str, StandIn], distributions: Any
) -> None:
    for run in MODELS:
        results.decode(run)
    replaced(servers["llama"], distributions[1])
    with pytest.raises(UserError) as error:
        results.decode("rerank")
    trace = results.trace("llama", 0)
    assert str(error.value).startswith(f"the answers in {str(trace)!r} are of 'toy' on vllm")
    assert str(error.value).endswith("now; delete that file and run again")


def test_without_its_server_a_job_says_so_and_keeps_its_rows(tmp_path: Path) -> None:
    results = Results(tmp_path, {"llama": {"server": "http://127.0.0.1:9"}})
    with pytest.raises(UserError, match=r"^there is no server of a model at http://127.0.0.1:9 "):
        results.decode("llama")
