"""The trace of a run that takes its rows from others."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from adafuse.benchmarks.shards import PreparedRow, write_prepared
from adafuse.config.config import Config
from adafuse.config.experiments import MainConfig
from adafuse.config.reading import parse_config
from adafuse.errors import UserError
from adafuse.metrics.score import evaluate, score_trace, write_outcomes, write_score
from adafuse.records.result import Result
from adafuse.report.certificates import certificates_table, stored_certificates
from adafuse.report.main_table import build_table, to_markdown
from adafuse.storage.parquet import read_metadata, read_rows, write_rows
from adafuse.storage.traces import result_columns
from adafuse.workflow.choose import ballot, choose_rows
from adafuse.workflow.decode import TRACE_FIELDS
from adafuse.workflow.digest import choice_settings
from adafuse.workflow.layout import ResultsLayout
from adafuse.workflow.plan import Plan
from adafuse.workflow.steps import Job
from tools.docs.tables import CERTIFIED, CHOSEN

IDS = [f"r{number}" for number in range(4)]


@pytest.fixture
def config(values: dict[str, Any]) -> Config:
    pair = {"models": ["left", "right"], "options": {"runs": ["both"]}}
    values["runs"] |= {
        "right": {"method": "single", "models": ["right"]},
        "best": {"method": "best_of", "models": ["left", "right"]},
        "pair": {"method": "best_pair", **pair},
        "fair": {"method": "development_pair", **pair},
        "sure": {"method": "certified", **pair},
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
    assert ballot(config, "qa", "sure").candidates == ("both", "left", "right")
    assert ballot(config, "qa", "sure").evidence == tuple(
        ("dev", run) for run in ("both", "left", "right")
    )


def test_a_choice_by_development_rows_that_a_benchmark_has_none_of_is_refused(
    config: Config,
) -> None:
    with pytest.raises(UserError, match=r"runs\.fair: benchmark 'dev' has no development rows"):
        ballot(config, "dev", "fair")


def test_a_certified_run_is_the_run_that_other_rows_chose(config: Config, tmp_path: Path) -> None:
    for run, text in (("left", "yes"), ("right", "no"), ("both", "no")):
        store(config, run, ["no", "yes", run, run])
        store(config, run, [text] * 4, "dev")
    out = tmp_path / "sure.parquet"
    assert choose_rows(config, "qa", "sure", out) == {"left": 4}  # three rows certify nothing
    assert [row["text"] for row in read_rows(out)] == ["no", "yes", "left", "left"]
    metadata = read_metadata(out)
    assert metadata.keys() == CHOSEN.keys() | CERTIFIED.keys()
    found = metadata["certificate"]
    assert (found["on"], found["n"], found["certified"]) == ("dev", 3, False)
    assert found["sentence"].startswith("left, the member that leads: not certified (3 rows")
    store(config, "both", ["yes"] * 4, "dev")
    assert choose_rows(config, "qa", "sure", out) == {"left": 4}


def test_the_score_and_the_tables_say_whether_there_is_a_certificate(config: Config) -> None:
    for run in ("left", "right", "both"):
        store(config, run, ["yes"] * 4)
        store(config, run, ["yes"] * 4, "dev")
    layout = ResultsLayout(config.results)
    trace = layout.trace("qa", "sure")
    choose_rows(config, "qa", "sure", trace)
    rows = layout.rows("qa")
    write_prepared(rows, [PreparedRow(name, "0", "?", ("yes",)) for name in IDS])
    found = score_trace(rows, trace, "squad", "strict", benchmark="qa", run="sure")
    assert found.score.certified is False
    table = build_table(["qa"], {"sure": ("certified", ["left", "right"])}, [found.score], None)
    shown = to_markdown(table)
    assert "not certified |" in shown
    assert "- sure on qa is left, the member that leads: not certified (3 rows" in shown
    main = {"benchmarks": ["qa"], "runs": ["left", "right", "both", "sure"]}
    both = config.model_copy(update={"main": MainConfig(**main)})
    certificates = certificates_table(stored_certificates(both))
    assert [row[:3] for row in certificates.rows] == [["qa", "sure", "dev"]] * 3
    assert "left, the member that leads: not certified" in certificates.markdown


def test_a_certificate_is_made_again_with_what_it_depends_on(values: dict[str, Any]) -> None:
    settings = {"runs": ["both"], "order": "half"}

    def key(margin: float = 1.0, **options: Any) -> str:
        sure = {"method": "certified", "models": ["left", "right"], "options": settings | options}
        right = {"method": "single", "models": ["right"]}
        runs = values["runs"] | {"right": right, "sure": sure}
        main = {"benchmarks": ["qa"], "margin": margin}
        return choice_settings(parse_config({**certified, "runs": runs, "main": main}), "sure")

    qa = values["benchmarks"]["qa"]
    certified = {**values, "benchmarks": {"qa": {**qa, "development": "dev"}, "dev": qa}}
    assert len({key(), key(2.0), key(alpha=0.1), key(order="sequence")}) == 4


def test_the_table_of_certificates_is_made_again_for_a_run_of_another_name(
    values: dict[str, Any],
) -> None:
    qa = values["benchmarks"]["qa"]
    values["benchmarks"] = {"qa": {**qa, "development": "dev"}, "dev": qa}
    values["runs"]["right"] = {"method": "single", "models": ["right"]}
    certified = {"method": "certified", "models": ["left", "right"], "options": {"runs": ["both"]}}

    def key(name: str) -> str:
        main = {"benchmarks": ["qa"]}
        runs = {**values["runs"], name: certified}
        plan = Plan(parse_config({**values, "main": main, "runs": runs}))
        return plan.key(Job.of("certificates"))

    assert key("sure") != key("safe")


def test_rows_that_are_scored_certify_nothing(values: dict[str, Any]) -> None:
    qa = values["benchmarks"]["qa"]
    values["benchmarks"] = {"qa": {**qa, "development": "dev"}, "dev": qa}
    sure = {"method": "certified", "models": ["left", "right"], "options": {"runs": ["both"]}}
    values["runs"] |= {"right": {"method": "single", "models": ["right"]}, "sure": sure}
    del values["runs"]["far"]
    with pytest.raises(UserError, match=r"runs.sure: row 'r0' of 'dev', on which it is chosen, is"):
        Plan.of({**values, "main": {"benchmarks": ["qa"]}})


def test_copies_among_the_rows_that_certify_are_a_warning(
    values: dict[str, Any], tmp_path: Path
) -> None:
    lines = [f'{{"question": "d{n % 4}?", "answer": "yes"}}\n' for n in range(6)]
    (tmp_path / "dev.jsonl").write_text("".join(lines))
    qa = values["benchmarks"]["qa"]
    dev = {**qa, "source": {"file": str(tmp_path / "dev.jsonl")}, "shards": 1}
    values["benchmarks"] = {"qa": {**qa, "development": "dev"}, "dev": dev}
    plan = {**values, "main": {"benchmarks": ["qa"], "runs": ["left"]}}
    assert not Plan.of(plan).warnings, "nothing is learned from them"
    sure = {"method": "certified", "models": ["left", "right"], "options": {"runs": ["both"]}}
    values["runs"] |= {"right": {"method": "single", "models": ["right"]}, "sure": sure}
    del values["runs"]["far"]
    (warning,) = Plan.of(plan).warnings
    assert warning.startswith("benchmarks.dev: 2 of 6 rows have the question of an earlier one")
