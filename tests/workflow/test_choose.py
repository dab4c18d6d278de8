"""The trace of a run that takes its rows from others."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from adafuse.config.config import Config
from adafuse.config.reading import parse_config
from adafuse.metrics.score import evaluate, write_outcomes, write_score
from adafuse.records.result import Result
from adafuse.storage.parquet import read_metadata, read_rows, write_rows
from adafuse.storage.traces import result_columns
from adafuse.workflow.choose import ballot, choose_rows
from adafuse.workflow.decode import TRACE_FIELDS
from adafuse.workflow.layout import ResultsLayout
from tools.docs.tables import CHOSEN

IDS = [f"r{number}" for number in range(4)]


@pytest.fixture
def config(values: dict[str, Any]) -> Config:
    pair = {"models": ["left", "right"], "options": {"runs": ["both"]}}
    values["runs"] |= {
        "right": {"method": "single", "models": ["right"]},
        "best": {"method": "best_of", "models": ["left", "right"]},
        "pair": {"method": "best_pair", **pair},
        "fair": {"method": "development_pair", **pair},
    }
    qa = values["benchmarks"]["qa"]
    values["benchmarks"] = {"qa": {**qa, "development": "dev"}, "dev": qa}
    return parse_config({**values, "main": {"benchmarks": ["qa"]}})


def store(config: Config, run: str, texts: list[str], benchmark: str = "qa") -> None:
    """Write the trace and score of a run whose right answers are "yes"."""

    class Row:
        def __init__(self, identifier: str) -> None:
            self.id, self.answers = identifier, ("yes",)

    rows = [
        {"id": row, "benchmark": benchmark, "run": run, "shard": 0, "prompt_sha256": "0"}
        | result_columns(Result(text, "stop", (), (1,), (2,), (3,), 0.5))
        for row, text in zip(IDS, texts, strict=True)
    ]
    layout = ResultsLayout(config.results)
    write_rows(layout.trace(benchmark, run), TRACE_FIELDS, rows, {"digest": run})
    result = evaluate(
        [Row(row) for row in IDS], rows, "squad", benchmark=benchmark, run=run, exclude={"r3"}
    )
    write_outcomes(layout.outcomes("strict", benchmark, run), result.outcomes, {})
    write_score(layout.score("strict", benchmark, run), result.score)
    assert asdict(result.score)["n"] == 3


def test_best_of_takes_the_right_answer_wherever_there_is_one(
    config: Config, tmp_path: Path
) -> None:
    store(config, "left", ["yes", "no", "no", "left"])
    store(config, "right", ["yes", "yes", "nope", "right"])
    out = tmp_path / "best.parquet"
    counts = choose_rows(config, "qa", "best", out)
    # The row that nobody scored is the first model's.
    assert [row["text"] for row in read_rows(out)] == ["yes", "yes", "no", "left"]
    assert {row["run"] for row in read_rows(out)} == {"best"}
    assert [row["id"] for row in read_rows(out)] == IDS
    assert counts == {"left": 3, "right": 1} == read_metadata(out)["rows_from"]
    assert read_metadata(out).keys() == CHOSEN.keys()
    assert read_metadata(out)["of"] == {"left": "left", "right": "right"}


def test_a_pair_is_taken_whole(config: Config, tmp_path: Path) -> None:
    for run in ("left", "right", "both"):
        store(config, run, ["no", "yes", run, run])
    out = tmp_path / "pair.parquet"
    assert choose_rows(config, "qa", "pair", out) == {"both": 4}
    assert [row["text"] for row in read_rows(out)] == ["no", "yes", "both", "both"]


def test_a_choice_depends_on_its_candidates_and_the_scores_of_the_models_alone(
    config: Config,
) -> None:
    assert ballot(config, "qa", "best").candidates == ("left", "right")
    assert ballot(config, "qa", "pair").candidates == ("both",)
    assert ballot(config, "qa", "pair").evidence == (("qa", "left"), ("qa", "right"))
    assert ballot(config, "qa", "fair").evidence == (("dev", "left"), ("dev", "right"))
