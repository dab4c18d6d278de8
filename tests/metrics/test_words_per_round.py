"""Shares of rounds by the words they committed."""

from collections import Counter

import pyarrow as pa
import pytest

from adafuse.errors import UserError
from adafuse.metrics.intervals import wilson
from adafuse.metrics.measures import word_shares, words_per_round
from adafuse.records.result import Result, Round
from adafuse.report.tables import to_csv, words_table
from adafuse.storage.parquet import write_rows
from adafuse.storage.traces import RESULT_FIELDS, result_columns

NAMES = [pa.field("benchmark", pa.string()), pa.field("run", pa.string())]


def row(*words: int, run: str = "adafuse"):
    rounds = tuple(Round((), 0, count, ()) for count in words)
    return {"benchmark": "qa", "run": run} | result_columns(
        Result("x", "eos", rounds, (1,), (1,), (1,), 0.1)
    )


def trace(tmp_path, *rows):
    path = tmp_path / "trace.parquet"
    write_rows(path, [*NAMES, *RESULT_FIELDS], rows, {})
    return path


def test_shares_are_counted_over_all_rows_with_wilson_intervals(tmp_path) -> None:
    one, two, three = words_per_round(trace(tmp_path, row(3, 3, 1, 0), row(), row(2, 3)))
    assert [each.rounds for each in (one, two, three)] == [1, 1, 3]
    assert {(each.n, each.wordless) for each in (one, two, three)} == {(5, 1)}
    assert three.share == pytest.approx(60)
    assert (three.low, three.high) == pytest.approx([100 * end for end in wilson(3, 5)])
    assert one.share + two.share + three.share == pytest.approx(100)


def test_more_than_three_words_get_a_share_of_their_own() -> None:
    shares = word_shares("qa", "long", Counter({5: 4}))
    assert [(each.words, each.rounds) for each in shares] == [(1, 0), (2, 0), (3, 0), (5, 4)]


def test_a_trace_without_committed_words_has_no_shares(tmp_path) -> None:
    assert words_per_round(trace(tmp_path, row(), row(0))) == []
    assert words_per_round(trace(tmp_path)) == []


def test_a_trace_of_two_runs_is_refused(tmp_path) -> None:
    with pytest.raises(UserError, match="mixes"):
        words_per_round(trace(tmp_path, row(1), row(1, run="other")))


def test_the_csv_has_four_decimals() -> None:
    head, first, *_ = to_csv(
        words_table(word_shares("qa", "a", Counter({1: 1, 2: 2})))
    ).splitlines()
    assert head == "benchmark,run,words,rounds,n,share,low,high,wordless"
    assert first.startswith("qa,a,1,1,3,33.3333,")
