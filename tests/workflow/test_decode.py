"""Decoding a shard and merging shards, with a decoder that needs no model."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from adafuse.benchmarks.shards import PreparedRow, read_prepared, write_shard
from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.records.result import Result
from adafuse.storage.journal import Journal, journal_path
from adafuse.storage.parquet import read_metadata, read_rows, write_rows
from adafuse.workflow.decode import (
    TRACE_FIELDS,
    Answers,
    decode_shard,
    ensemble_decoder,
    merge_shards,
)
from adafuse.workflow.jobs import DecodeJob, decode_job
from adafuse.workflow.plan import Plan
from adafuse.workflow.stamps import write_stamp
from adafuse.workflow.steps import Job


class StoppedError(Exception):
    """The end of a process, as far as the code under test can tell."""


class Echo:
    """Answers every prompt with itself, last prompt first; may stop after some."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.prompts: list[str] = []
        self._left = stop_after

    def __call__(
        self, job: DecodeJob, rows: Sequence[PreparedRow], answers: Answers | None
    ) -> Iterator[tuple[int, Result]]:
        for index in reversed(range(len(rows))):
            if self._left == len(self.prompts):
                raise StoppedError
            self.prompts.append(rows[index].prompt)
            text = f"{job.run}: {rows[index].prompt}"
            yield index, Result(text, "stop", (), (1,), (2,), (3,), 0.5)


class Shards:
    """The shards of the run "both" with the files that the workflow would make."""

    def __init__(self, values: dict[str, Any], folder: Path, run: str = "both") -> None:
        self.plan = Plan.of(values)
        self.folder = folder
        self.job = decode_job(self.plan.config, "qa", run)
        for number in self.plan.shards("qa"):
            write_shard(self.rows(number), self.plan.prepared("qa").shard(number))

    def rows(self, number: int) -> Path:
        return self.folder / f"{number}.jsonl"

    def out(self, number: int) -> Path:
        return self.folder / f"{number}.parquet"

    def decode(
        self, number: int, decoder: Echo, digest: str | None = None, **settings: Any
    ) -> None:
        wanted = digest or self.plan.digest("qa", self.job.run, number)
        files = self.rows(number), self.out(number)
        decode_shard(self.job, number, *files, digest=wanted, decoder=decoder, **settings)
        write_stamp(self.out(number), wanted)

    def merge(self, *numbers: int) -> Path:
        out = self.folder / "both.parquet"
        files = [self.out(number) for number in numbers or (0, 1)]
        digests = self.plan.digests("qa", "both")
        merge_shards(files, digests, [self.rows(number) for number in (0, 1)], out)
        write_stamp(out, "merged")
        return out


@pytest.fixture
def shards(values: dict[str, Any], tmp_path: Path) -> Shards:
    return Shards(values, tmp_path / "shards")


def test_a_trace_has_the_rows_in_the_order_of_the_shard(shards: Shards) -> None:
    shards.decode(0, Echo())
    rows, wanted = read_rows(shards.out(0)), read_prepared(shards.rows(0))
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
    prompts = [row.prompt for row in read_prepared(shards.rows(0))]
    assert sorted(first.prompts + second.prompts) == sorted(prompts)
    assert read_metadata(shards.out(0))["resumed"] == 2


def test_a_job_whose_journal_is_whole_needs_no_model(shards: Shards) -> None:
    rows = read_prepared(shards.rows(0))
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
    assert len(echo.prompts) == len(read_prepared(shards.rows(0)))


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "new"),
    [
        (lambda values: values["runs"].update(renamed=values["runs"].pop("both")), 0),
        (lambda values: values["benchmarks"]["qa"].update(shards=1), 0),
        (lambda values: values["benchmarks"]["qa"].update(limit=4), 0),
        (lambda values: values["decode"].update(device="auto", gpu=1), 0),
        (lambda values: values["runs"]["both"]["options"].update(tau=0.1), 12),
        (lambda values: values["benchmarks"]["qa"].update(max_new_tokens=7), 12),
        (lambda values: values["runs"]["both"].update(weights=[1, 2]), 12),
    ],
    ids=["run renamed", "shards", "limit", "device", "tau", "max_new_tokens", "weights"],
)
@pytest.mark.parametrize("merged", [True, False], ids=["merged", "not merged"])
def test_only_rows_that_nothing_has_are_decoded(
    decoded: Shards, values: dict[str, Any], merged: bool, change: Change, new: int
) -> None:
    if merged:
        decoded.merge()
        for number in (0, 1):
            decoded.out(number).unlink()
    change(values)
    later = Shards(
        values, decoded.folder / "later", run="both" if "both" in values["runs"] else "renamed"
    )
    echoes = [Echo() for _ in later.plan.shards("qa")]
    for number, echo in enumerate(echoes):
        later.decode(number, echo, traces=decoded.folder)
        names = {(row["run"], row["shard"]) for row in read_rows(later.out(number))}
        assert names <= {(later.job.run, number)}
        told = read_metadata(later.out(number))
        assert told["reused"] + len(echo.prompts) == len(read_prepared(later.rows(number)))
    assert sum(len(echo.prompts) for echo in echoes) == new


def test_what_was_decoded_is_used_again_when_a_setting_is_changed_back(
    values: dict[str, Any], tmp_path: Path
) -> None:
    folder, counts = tmp_path / "traces/qa/both", []
    tau = values["runs"]["both"]["options"]["tau"]
    for value in (tau, 0.1, 0.2, tau, 0.1):
        values["runs"]["both"]["options"]["tau"] = value
        now, echoes = Shards(values, folder), [Echo(), Echo()]
        for number, echo in enumerate(echoes):
            now.out(number).unlink(missing_ok=True)  # as Snakemake does
            now.decode(number, echo, traces=tmp_path / "traces")
        counts.append(sum(len(echo.prompts) for echo in echoes))
        merged = folder.parent / "both.parquet"
        merged.unlink(missing_ok=True)
        now.merge().rename(merged)
        write_stamp(merged, str(value))
    assert counts == [12, 12, 12, 0, 0]
    assert len([*folder.glob(".earlier/*.parquet")]) == 3


def test_an_edited_question_is_the_only_one_decoded(
    decoded: Shards, values: dict[str, Any]
) -> None:
    source = Path(values["benchmarks"]["qa"]["source"]["file"])
    lines = source.read_text().splitlines()
    row = json.loads(lines[3])
    lines[3] = json.dumps(row | {"question": "Who swims?"})
    source.write_text("\n".join(reversed(lines)) + "\n")
    later = Shards(values, decoded.folder / "later")
    echoes = [Echo(), Echo()]
    for number, echo in enumerate(echoes):
        later.decode(number, echo, traces=decoded.folder)
    assert [p for echo in echoes for p in echo.prompts] == [
        row.prompt for row in later.plan.prepared("qa").rows if "Who swims?" in row.prompt
    ]


def test_failed_rows_and_damaged_files_are_not_reused(decoded: Shards, values: Any) -> None:
    rows = read_rows(decoded.out(0))
    rows[0] |= {"stop_reason": "error", "error": "out of memory"}
    metadata = read_metadata(decoded.out(0))
    write_rows(decoded.out(0), TRACE_FIELDS, rows, metadata)
    write_stamp(decoded.out(0), "digest")
    decoded.out(0).with_suffix(".journal").unlink()
    decoded.out(1).with_suffix(".journal").unlink()
    write_stamp(decoded.out(1), "digest")
    content = bytearray(decoded.out(1).read_bytes())
    content[20] ^= 1
    decoded.out(1).write_bytes(content)
    later = Shards(values, decoded.folder / "later")
    for number, count in ((0, 1), (1, len(read_prepared(decoded.rows(1))))):
        later.decode(number, echo := Echo(), traces=decoded.folder)
        assert len(echo.prompts) == count


def test_rows_of_a_file_that_the_workflow_did_not_write_are_not_used(
    decoded: Shards, values: Any
) -> None:
    rows = [{**row, "text": "made up"} for row in read_rows(decoded.out(0))]
    write_rows(decoded.folder / "a/what_if.parquet", TRACE_FIELDS, rows, {})
    odd = pa.table({"digest": [{"a": 1}]})
    pq.write_table(odd, decoded.folder / "a/odd.parquet")
    decoded.merge()
    later = Shards(values, decoded.folder / "later")
    later.decode(0, echo := Echo(), traces=decoded.folder)
    assert echo.prompts == []
    assert "made up" not in {row["text"] for row in read_rows(later.out(0))}
    (source,) = read_metadata(later.out(0))["reused_from"]
    assert source["file"] == str(decoded.folder / "0.parquet")
    assert source["rows"] == len(rows) and source["decoded"][0]["versions"]["torch"]


def test_a_failed_row_does_not_hide_a_good_one(decoded: Shards, values: Any) -> None:
    decoded.merge()
    digests = decoded.plan.row_digests("qa", "both", 0)
    with Journal(decoded.folder / "a/failed.journal", digests) as journal:
        for name in digests:
            journal.append(name, {"stop_reason": "error", "error": "no room"})
    later = Shards(values, decoded.folder / "later")
    later.decode(0, echo := Echo(), traces=decoded.folder)
    assert echo.prompts == []


def test_a_timed_benchmark_is_decoded_for_its_times(decoded: Shards, values: Any) -> None:
    values["benchmarks"]["qa"]["timed"] = True
    later = Shards(values, decoded.folder / "later")
    assert later.plan.digest("qa", "both", 0) != decoded.plan.digest("qa", "both", 0)
    assert not {*later.plan.row_digests("qa", "both", 0).values()} & {
        *decoded.plan.row_digests("qa", "both", 0).values()
    }


def test_merging_keeps_a_journal_with_rows_of_another_configuration(
    decoded: Shards, values: dict[str, Any]
) -> None:
    values["runs"]["both"]["options"]["tau"] = 0.1
    with pytest.raises(StoppedError):
        Shards(values, decoded.folder).decode(0, Echo(stop_after=2))
    decoded.merge()
    journals = {path.name for path in decoded.folder.glob("*.journal")}
    assert journals == {"0.journal"}


def test_rows_that_do_not_fit_the_plan_are_refused(shards: Shards) -> None:
    with pytest.raises(UserError, match=r"is not what digest 0+ was planned for: the config"):
        shards.decode(0, Echo(), digest="0" * 32)


def test_a_trace_that_is_lost_before_the_merge_is_written_again_without_decoding(
    shards: Shards,
) -> None:
    shards.decode(0, Echo())
    rows = read_rows(shards.out(0))
    shards.out(0).unlink()
    shards.decode(0, Echo(stop_after=0))
    assert read_rows(shards.out(0)) == rows


def test_what_a_killed_writer_left_is_cleared_away(shards: Shards) -> None:
    torn = shards.folder / ".0.parquet.123.tmp"
    torn.write_bytes(b"PAR1")
    shards.decode(0, Echo())
    assert not torn.exists()


class Failing(Echo):
    """Fails at some rows."""

    def __init__(self, bad: Sequence[str], says: str | None = "no\nroom") -> None:
        super().__init__()
        self._bad, self._says = bad, says

    def __call__(self, *asked: Any) -> Iterator[tuple[int, Result]]:
        for index, result in super().__call__(*asked):
            failed = asked[1][index].id in self._bad
            error = ("error", self._says, "Traceback") if failed else ("stop", None, None)
            yield index, replace(result, stop_reason=error[0], error=error[1], traceback=error[2])


def failed(file: Path) -> set[str]:
    return {row["id"] for row in read_rows(file) if row["error"] is not None}


def test_rows_that_fail_are_rows_with_their_traceback(shards: Shards) -> None:
    ids = [row.id for row in read_prepared(shards.rows(0))]
    shards.decode(0, Failing(ids[:1]), max_error_share=1 / len(ids))
    assert failed(shards.out(0)) == {ids[0]}
    (row,) = (row for row in read_rows(shards.out(0)) if row["id"] == ids[0])
    assert (row["stop_reason"], row["error"]) == ("error", "no\nroom")
    assert row["traceback"] == "Traceback"


def test_too_many_failed_rows_fail_the_job_and_keep_the_others(shards: Shards) -> None:
    ids = [row.id for row in read_prepared(shards.rows(0))]
    bad = ids[-3:-1]  # the decoder begins with the last row
    with pytest.raises(UserError) as error:
        shards.decode(0, broken := Failing(bad), max_error_share=1 / len(ids))
    assert str(error.value) == (
        f"2 of {len(ids)} rows failed, of 3 decoded so far, more than decode.max_error_share:"
        f" {1 / len(ids):g} allows; the first one, {bad[1]!r}, says: no room; fix it or raise the"
        " share, and run again: 1 rows are kept"
    )
    assert len(broken.prompts) == 3, "it does not go on in vain"
    with pytest.raises(UserError, match=r"2 of .* rows failed, .* says: no reason; fix it"):
        shards.decode(0, Failing(bad, says=None), max_error_share=1 / len(ids))
    shards.decode(0, mended := Echo(), max_error_share=1 / len(ids))
    assert len(mended.prompts) == len(ids) - 1
    assert failed(shards.out(0)) == set()


def test_a_lower_share_plans_failed_rows_of_existing_traces_again(
    shards: Shards, values: dict[str, Any]
) -> None:
    ids = [row.id for row in read_prepared(shards.rows(0))]
    shards.decode(0, Failing(ids[:1]))
    shards.decode(1, Echo())
    plan, jobs = shards.plan, [Job.of("decode", "qa", "both", k) for k in (0, 1)]
    jobs.append(Job.of("merge", "qa", "both"))
    for job, made in zip(jobs, (shards.out(0), shards.out(1), shards.merge()), strict=True):
        (path,) = plan.outputs(job)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(made, path)
        write_stamp(path, plan.key(job))

    def again(share: float) -> list[bool]:
        values["decode"]["max_error_share"] = share
        plan = Plan.of(values)
        return [not plan.is_fresh(job) for job in jobs]

    assert again(0.0) == [True, False, True]
    assert again(0.999 / len(ids)) == [True, False, True]
    assert again(1 / len(ids)) == again(1.0) == [False, False, False]
    shards.out(0).unlink()  # as Snakemake does before it runs a job
    for number in (0, 1):
        journal_path(shards.out(number)).unlink(missing_ok=True)
    with pytest.raises(UserError, match=r"^1 of 7 rows failed, of 7 decoded so far, more than"):
        shards.decode(0, tried := Failing(ids[:1]), traces=shards.folder, max_error_share=0.0)
    assert len(tried.prompts) == 1, "the others are taken from the merged trace"


def test_after_a_higher_share_failed_rows_are_not_tried_again(shards: Shards) -> None:
    ids = [row.id for row in read_prepared(shards.rows(0))]
    with pytest.raises(UserError, match="1 of"):
        shards.decode(0, Failing(ids[-1:]), max_error_share=0.0)
    shards.decode(0, rest := Echo(), max_error_share=0.5)
    assert len(rest.prompts) == len(ids) - 1
    assert failed(shards.out(0)) == {ids[-1]}


@pytest.fixture
def decoded(shards: Shards) -> Shards:
    for number in (0, 1):
        shards.decode(number, Echo())
    return shards


def test_merging_keeps_rows_and_what_each_shard_says_of_itself(decoded: Shards) -> None:
    out = decoded.merge()
    assert read_rows(out) == [row for number in (0, 1) for row in read_rows(decoded.out(number))]
    assert [each["shard"] for each in read_metadata(out)["shards"]] == [0, 1]


def test_merging_takes_the_journals_away(decoded: Shards) -> None:
    assert len(list(decoded.folder.glob("*.journal"))) == 2
    decoded.merge()
    assert not list(decoded.folder.glob("*.journal"))


def test_merging_names_all_files_of_another_configuration(decoded: Shards) -> None:
    with pytest.raises(UserError, match=r"another configuration: .*1\.parquet' \(.*0\.parquet' \("):
        decoded.merge(1, 0)
    assert not (decoded.folder / "both.parquet").exists()
    assert len(list(decoded.folder.glob("*.journal"))) == 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda rows: rows[1:], "0.parquet' is not whole: row {!r} is missing; delete it and run"),
        (lambda rows: [*rows, rows[0]], ": row {!r} is there too often; delete it and run again"),
        (lambda rows: [*rows, rows[0] | {"id": "x"}], ": row 'x' is there too often; delete it"),
    ],
)
def test_merging_finds_rows_that_are_missing_or_there_twice(
    decoded: Shards, change: Any, sentence: str
) -> None:
    file = decoded.out(0)
    rows, metadata = read_rows(file), read_metadata(file)
    write_rows(file, TRACE_FIELDS, change(rows), metadata)
    with pytest.raises(UserError) as error:
        decoded.merge()
    assert sentence.format(rows[0]["id"]) in str(error.value)
    assert not (decoded.folder / "both.parquet").exists()


@pytest.mark.parametrize("content", [b"", b"PAR1", b"a,b\n1,2\n", None])
def test_merging_refuses_a_torn_or_foreign_file(decoded: Shards, content: bytes | None) -> None:
    file = decoded.out(1)
    file.write_bytes(file.read_bytes()[:-30] if content is None else content)
    with pytest.raises(UserError, match=r"1\.parquet' is not a readable Parquet .* or delete it"):
        decoded.merge()


def test_merging_refuses_a_parquet_file_of_somebody_else(decoded: Shards) -> None:
    pq.write_table(pa.table({"id": ["a"]}), decoded.out(1))
    with pytest.raises(UserError, match=r"1\.parquet' was not written by adafuse"):
        decoded.merge()


def test_a_job_keeps_the_threads_that_it_was_given_however_busy_the_machine(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(models: object, *, weights: object, threads: object) -> None:
        assert threads == 5
        raise StoppedError

    monkeypatch.setattr(Ensemble, "from_pretrained", load)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 5)
    with pytest.raises(StoppedError):
        ensemble_decoder(decode_job(Plan.of(values).config, "qa", "both"), [], None)
