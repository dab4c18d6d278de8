"""Decoding a shard and merging shards, with a decoder that needs no model."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from adafuse.benchmarks.shards import ShardRow, read_shard, write_shard
from adafuse.errors import UserError
from adafuse.pipeline.decode import TRACE_FIELDS, Answers, decode_shard
from adafuse.pipeline.job import DecodeJob, decode_job
from adafuse.pipeline.merge import merge_shards
from adafuse.pipeline.plan import Plan
from adafuse.records import Result
from adafuse.traces.table import read_metadata, read_rows


class StoppedError(Exception):
    """The end of a process, as far as the code under test can tell."""


class Echo:
    """Answers every prompt with itself, last prompt first; may stop after some."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.prompts: list[str] = []
        self._left = stop_after

    def __call__(
        self, job: DecodeJob, rows: Sequence[ShardRow], answers: Answers | None
    ) -> Iterator[tuple[int, Result]]:
        for index in reversed(range(len(rows))):
            if self._left == len(self.prompts):
                raise StoppedError
            self.prompts.append(rows[index].prompt)
            text = f"{job.run}: {rows[index].prompt}"
            yield index, Result(text, "stop", (), (1,), (2,), (3,), 0.5)


class Shards:
    """The shards of the run "both" with the files that the workflow would make."""

    def __init__(self, values: dict[str, Any], folder: Path) -> None:
        self.plan = Plan.of(values)
        self.folder = folder
        self.job = decode_job(self.plan.config, "qa", "both")
        for number in (0, 1):
            write_shard(self.rows(number), self.plan.prepared("qa").shard(number))

    def rows(self, number: int) -> Path:
        return self.folder / f"{number}.jsonl"

    def out(self, number: int) -> Path:
        return self.folder / f"{number}.parquet"

    def decode(self, number: int, decoder: Echo, digest: str | None = None) -> None:
        wanted = digest or self.plan.digest("qa", "both", number)
        decode_shard(
            self.job, number, self.rows(number), self.out(number), digest=wanted, decoder=decoder
        )


@pytest.fixture
def shards(values: dict[str, Any], tmp_path: Path) -> Shards:
    return Shards(values, tmp_path / "shards")


def test_a_trace_has_the_rows_in_the_order_of_the_shard(shards: Shards) -> None:
    shards.decode(0, Echo())
    rows, wanted = read_rows(shards.out(0)), read_shard(shards.rows(0))
    assert [row["id"] for row in rows] == [row.id for row in wanted]
    assert [row["text"] for row in rows] == [f"both: {row.prompt}" for row in wanted]
    assert list(rows[0]) == [field.name for field in TRACE_FIELDS]
    assert (rows[0]["benchmark"], rows[0]["run"], rows[0]["shard"]) == ("qa", "both", 0)
    assert rows[0]["prompt_sha256"] == wanted[0].prompt_sha256


def test_a_trace_says_how_each_model_was_loaded(values: dict[str, Any], tmp_path: Path) -> None:
    values["models"]["right"] |= {"quantization": "int4", "trust_remote_code": True}
    shards = Shards(values, tmp_path / "shards")
    shards.decode(0, Echo())
    job = read_metadata(shards.out(0))["job"]
    assert job["quantization"] == [None, "int4"]
    assert (job["trust_remote_code"], job["allow_pickle"]) == ([False, True], [False, False])


def test_an_interrupted_job_decodes_no_example_twice(shards: Shards) -> None:
    first, second = Echo(stop_after=2), Echo()
    with pytest.raises(StoppedError):
        shards.decode(0, first)
    assert not shards.out(0).exists()
    shards.decode(0, second)
    prompts = [row.prompt for row in read_shard(shards.rows(0))]
    assert sorted(first.prompts + second.prompts) == sorted(prompts)
    assert read_metadata(shards.out(0))["resumed"] == 2
    assert [path.name for path in shards.folder.iterdir() if path.suffix == ".journal"] == []


def test_a_job_whose_journal_is_whole_needs_no_model(shards: Shards) -> None:
    rows = read_shard(shards.rows(0))
    with pytest.raises(StoppedError):
        shards.decode(0, Echo(stop_after=len(rows) - 1))
    shards.decode(0, last := Echo())
    assert len(last.prompts) == 1


def test_a_journal_of_another_configuration_is_not_used(shards: Shards, values: Any) -> None:
    with pytest.raises(StoppedError):
        shards.decode(0, Echo(stop_after=2))
    values["runs"]["both"]["options"]["tau"] = 0.1
    other = Shards(values, shards.folder)
    other.decode(0, echo := Echo())
    assert len(echo.prompts) == len(read_shard(shards.rows(0)))


def test_rows_that_do_not_fit_the_plan_are_refused(shards: Shards) -> None:
    with pytest.raises(UserError, match="is not what digest"):
        shards.decode(0, Echo(), digest="0" * 32)


def test_merging_keeps_rows_and_what_each_shard_says_of_itself(shards: Shards) -> None:
    for number in (0, 1):
        shards.decode(number, Echo())
    out = shards.folder / "both.parquet"
    files = [shards.out(number) for number in (0, 1)]
    merge_shards(files, shards.plan.digests("qa", "both"), out)
    assert read_rows(out) == [row for file in files for row in read_rows(file)]
    assert [each["shard"] for each in read_metadata(out)["shards"]] == [0, 1]


def test_merging_refuses_files_of_another_configuration(shards: Shards) -> None:
    for number in (0, 1):
        shards.decode(number, Echo())
    files = [shards.out(number) for number in (1, 0)]
    with pytest.raises(UserError, match=r"1\.parquet' holds results of another configuration"):
        merge_shards(files, shards.plan.digests("qa", "both"), shards.folder / "both.parquet")
