"""The pages of a results folder: what they show, and that nothing of it is taken for markup."""

import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from adafuse.benchmarks.shards import PreparedRow, write_prepared
from adafuse.cli.main import app
from adafuse.config.config import Config
from adafuse.config.experiments import ExperimentConfig
from adafuse.config.reading import parse_config, to_json
from adafuse.errors import UserError
from adafuse.export.dataset import _public_error, _samples, _source, model_info
from adafuse.metrics.compare import Comparison
from adafuse.metrics.published import read_published
from adafuse.metrics.score import (
    read_score,
    read_scored,
    score_trace,
    write_outcomes,
    write_score,
)
from adafuse.report.contents import read_contents
from adafuse.report.explorer import BenchmarkEntry, Manifest, write_manifest
from adafuse.report.pages import write_examples, write_report
from adafuse.report.stored import StoredResults
from adafuse.report.tables import comparison_table, published_section, to_csv
from adafuse.storage.files import write_text
from adafuse.storage.parquet import read_arrow, read_metadata, write_arrow, write_rows
from adafuse.storage.traces import RESULT_FIELDS, result_columns
from adafuse.workflow.layout import ResultsLayout
from tests.report.test_facts import shard
from tests.support.configuration import values as configuration
from tests.support.made_up import EVIL, FUSED

values = configuration
PUBLISHED = Path(__file__).parents[2] / "config/published.yaml"
NOTE = "a <script>note</script> & more"


class Words(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def config(tmp_path: Path, values: dict[str, Any]) -> Config:
    """A configuration whose results are there, as if the workflow had run."""
    values["benchmarks"] = {"natural_questions": values["benchmarks"]["qa"]}
    made = parse_config({**values, "results": str(tmp_path / "results"), "note": NOTE})
    for benchmark in made.benchmarks:
        rows = [PreparedRow(f"q{n}", f"whole {n}", f"task {n}", (" duck 0",)) for n in range(5)]
        folder = Path(made.results, "benchmarks", benchmark)
        write_prepared(folder / "rows.jsonl", rows)
        for run in made.runs:
            _write_run(made, benchmark, run, folder / "rows.jsonl")
    (tmp_path / "results/config.json").write_text(to_json(made))
    return made


def _write_run(config: Config, benchmark: str, run: str, rows: Path) -> None:
    trace = Path(config.results, "traces", benchmark, f"{run}.parquet")
    results = [{"id": f"q{n}", **result_columns(FUSED[n])} for n in range(5)]
    for row in results:
        row.update(benchmark=benchmark, run=run)
    names = [pa.field(name, pa.string()) for name in ("id", "benchmark", "run")]
    write_rows(trace, [*names, *RESULT_FIELDS], results, {"shards": [shard()]})
    metric = config.benchmarks[benchmark].scorer
    found = score_trace(rows, trace, metric, "strict", benchmark=benchmark, run=run)
    write_outcomes(
        ResultsLayout(config.results).outcomes("strict", benchmark, run), found.outcomes, {}
    )
    write_score(ResultsLayout(config.results).score("strict", benchmark, run), found.score)


def test_the_page_shows_every_run_and_takes_nothing_for_markup(
    config: Config, tmp_path: Path
) -> None:
    tables = Path(config.results, "tables")
    tables.mkdir()
    (tables / "datasets.md").write_text(f"accepted: {EVIL}\n\n| a |\n| --- |\n| <b>x</b> |\n")
    write_report(StoredResults.in_folder(config), tmp_path / "report")
    page = Words(tmp_path / "report/index.html")
    assert NOTE in page.text
    assert page.tags.count("script") == 4, "only those of the page itself"
    assert "img" not in page.tags and "b" not in page.tags
    assert "<script>document.title" in page.text
    for run in config.runs:
        assert run in page.text
    assert "org/a (abc); b (content 123)" in page.text


def test_the_page_shows_no_folder_of_the_machine_and_no_host(
    config: Config, tmp_path: Path
) -> None:
    (name, model), *others = config.models.items()
    mine = model.model_copy(update={"path": str(tmp_path / "my models/llama")})
    made = config.model_copy(update={"models": {name: mine, **dict(others)}})
    write_report(StoredResults.in_folder(made), tmp_path / "report")
    page = (tmp_path / "report/index.html").read_text()
    assert "&#34;path&#34;: &#34;llama&#34;" in page
    assert str(tmp_path) not in page and "my models" not in page and "node1" not in page


def test_an_exported_record_names_no_folder_that_is_elsewhere(config: Config) -> None:
    (name, model), *others = config.models.items()
    gone = model.model_copy(update={"path": "/data/me/models/llama"})
    made = config.model_copy(update={"models": {name: gone, **dict(others)}})
    run = next(run for run, spec in made.runs.items() if name in spec.models)
    assert f"local/{name}" in str(model_info(made, run))
    assert "/data" not in str(model_info(made, run))
    task = next(iter(made.benchmarks.values()))
    source = task.source.model_copy(update={"dataset": "/data/me/data/qa.jsonl"})
    assert "/data" not in str(_source("qa", task.model_copy(update={"source": source}), 3))
    assert _public_error({"error": "'/data/me/a.bin' is cut"}) == "'a.bin' is cut"


def test_failed_rows_stand_beside_the_score_of_the_page(config: Config, tmp_path: Path) -> None:
    benchmark, run = config.main_benchmarks[0], config.main_runs[0]
    path = ResultsLayout(config.results).score("strict", benchmark, run)
    write_score(path, replace(read_score(path), failed=2))
    write_report(StoredResults.in_folder(config), tmp_path / "report")
    page = (tmp_path / "report/index.html").read_text()
    assert page.count(" % cut, 2 failed</small>") == 1
    assert '"failed": 2' in (tmp_path / "report/assets/charts.js").read_text()


def test_a_choice_for_each_row_has_no_cost_and_one_of_a_run_has_that_of_the_run(
    config: Config,
) -> None:
    chosen = {
        method: config.runs["both"].model_copy(update={"method": method})
        for method in ("best_of", "best_pair")
    }
    made = config.model_copy(update={"runs": {**config.runs, **chosen}})
    for run in chosen:
        _write_run(
            made, "natural_questions", run, ResultsLayout(made.results).rows("natural_questions")
        )
    costs = read_contents(StoredResults.in_folder(made))["costs"]
    assert [cost.run for cost in costs] == [*config.runs, "best_pair"]


@pytest.fixture
def ranked(config: Config) -> Config:
    """A run that starts from the models' own answers, and a choice that took it."""
    both, layout = config.runs["both"], ResultsLayout(config.results)
    right = config.runs["left"].model_copy(update={"models": ("right",)})
    ranks = both.model_copy(update={"method": "rerank", "options": {}})
    chosen = both.model_copy(update={"method": "best_pair", "options": {"runs": ["ranked"]}})
    new = {"right": right, "ranked": ranks, "chosen": chosen}
    made = config.model_copy(update={"runs": {**config.runs, **new}})
    for run in new:
        _write_run(made, "natural_questions", run, layout.rows("natural_questions"))
    trace = layout.trace("natural_questions", "chosen")
    write_arrow(trace, read_arrow(trace), read_metadata(trace) | {"rows_from": {"ranked": 5}})
    return made


def test_the_answers_that_a_run_starts_from_are_part_of_its_cost(ranked: Config) -> None:
    costs = read_contents(StoredResults.in_folder(ranked))["costs"]
    found = {cost.run: cost.forwards for cost in costs}
    assert found["ranked"] == found["chosen"] == found["left"] + found["right"] + found["both"]
    ResultsLayout(ranked.results).trace("natural_questions", "right").unlink()
    costs = read_contents(StoredResults.in_folder(ranked))["costs"]
    assert found.keys() - {cost.run for cost in costs} == {"right", "ranked", "chosen"}


def test_the_page_warns_of_timed_runs_that_were_not_decoded_alike(
    config: Config, tmp_path: Path
) -> None:
    ((name, task),) = config.benchmarks.items()
    layout = ResultsLayout(config.results)
    timed = task.model_copy(update={"timed": True})
    made = config.model_copy(update={"benchmarks": {name: timed}})
    said = []
    for gpu in ("A100", "H200"):
        for run in made.runs:
            trace = layout.trace(name, run)
            place = {"place": {"gpus": [gpu if run == "both" else "A100"]}}
            metadata = {"shards": [shard(devices=["cuda:0"]) | place]}
            write_arrow(trace, read_arrow(trace), metadata)
        write_report(StoredResults.in_folder(made), tmp_path / gpu)
        said.append((tmp_path / gpu / "index.html").read_text().partition("not decoded alike")[2])
    assert said[0] == "", "all are on one kind of GPU"
    assert said[1].startswith(f" ({name}: GPU A100 and H200), so their seconds cannot")


def test_no_exported_row_has_the_tokens_of_but_one_of_the_answers_that_it_starts_from(
    ranked: Config,
) -> None:
    results = StoredResults.in_folder(ranked)
    for run in ranked.runs:
        scored = read_scored(results.layout.score("strict", "natural_questions", run))
        for sample in _samples(results, "natural_questions", run, scored, "e"):
            assert ("token_usage" in sample) == (run not in ("ranked", "chosen"))
            assert "performance" in sample


def test_only_the_published_table_says_that_its_oracles_are_no_upper_bounds(
    config: Config, tmp_path: Path
) -> None:
    best = config.runs["both"].model_copy(update={"method": "best_of"})
    made = config.model_copy(update={"runs": {**config.runs, "best": best}})
    for protocols in (("strict",), ("strict", "published")):
        shown = made.model_copy(update={"protocols": protocols})
        write_report(StoredResults.in_folder(shown), tmp_path / "report")
        page = (tmp_path / "report/index.html").read_text()
        assert page.count("need not be upper bounds") == len(protocols) - 1


def test_answers_in_the_audit_keep_their_slashes(config: Config, tmp_path: Path) -> None:
    text = "| prediction | gold |\n| --- | --- |\n| /r/science | science |\n"
    write_text(ResultsLayout(config.results).table("audit.md"), text)
    both = config.model_copy(update={"protocols": ("strict", "published")})
    write_report(StoredResults.in_folder(both), tmp_path / "report")
    assert "<td>/r/science</td>" in (tmp_path / "report/index.html").read_text()


def test_what_the_configuration_does_not_ask_for_is_left_out(
    config: Config, tmp_path: Path
) -> None:
    layout = ResultsLayout(config.results)
    shown = ExperimentConfig(
        title="Kept from before", kind="paired", benchmarks=("qa",), runs=("left", "both")
    )
    asked = config.model_copy(update={"experiments": {"before": shown}})
    write_text(layout.table("audit.md"), "An audit of before.\n")
    write_text(layout.experiment("before", "svg"), "<svg/>")
    write_text(layout.experiment("before", "csv"), "x\n")
    write_report(StoredResults.in_folder(asked), tmp_path / "report")
    page = (tmp_path / "report/index.html").read_text()
    assert "An audit of before" not in page and "figures/before.svg" not in page
    asked = asked.model_copy(
        update={"targets": ("tables", "experiments"), "protocols": ("strict", "published")}
    )
    write_report(StoredResults.in_folder(asked), tmp_path / "report")
    page = (tmp_path / "report/index.html").read_text()
    assert "An audit of before" in page and "figures/before.svg" in page


def test_what_is_not_there_is_left_out(config: Config, tmp_path: Path) -> None:
    first, *others = config.runs
    for benchmark in config.benchmarks:
        for run in others:
            Path(config.results, "traces", benchmark, f"{run}.parquet").unlink()
    stored = StoredResults.in_folder(config)
    assert set(map(tuple, stored.runs.values())) == {(first,)}
    write_report(stored, tmp_path / "report")
    page = Words(tmp_path / "report/index.html")
    assert "Paired comparisons" not in page.text and "Data sets" not in page.text
    folders = {path.name for path in (tmp_path / "report/data").glob("*/runs/*/")}
    assert folders == {first}


def test_what_an_earlier_report_showed_is_removed_and_nothing_else(
    config: Config, tmp_path: Path
) -> None:
    folder = tmp_path / "report"
    write_manifest(folder / "data", Manifest([BenchmarkEntry("old", 1, ())], {}, [], []))
    for name in ("old", "mine"):
        (folder / "data" / name).mkdir()
    write_report(StoredResults.in_folder(config), folder)
    assert {path.name for path in folder.glob("data/*/")} == {*config.benchmarks, "mine"}


@pytest.mark.parametrize("kind", ["file", "others", "unwritable"])
def test_a_folder_that_is_no_report_s_is_refused(config: Config, tmp_path: Path, kind: str) -> None:
    out = {"file": tmp_path / "f", "others": tmp_path / "d", "unwritable": Path("/proc/x")}[kind]
    (tmp_path / "f").write_text("mine")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/index.html").write_text("mine")
    with pytest.raises(UserError, match=r"cannot hold a report|holds other files than a report"):
        CliRunner().invoke(
            app, ["report", config.results, "--out", str(out)], catch_exceptions=False
        )
    assert (tmp_path / "d/index.html").read_text() == "mine"


def test_a_benchmark_that_is_not_scored_yet_has_no_n(config: Config, tmp_path: Path) -> None:
    shutil.rmtree(Path(config.results, "scores"))
    write_report(StoredResults.in_folder(config), tmp_path / "report")
    assert "None" not in Words(tmp_path / "report/index.html").text.split("Configuration and")[0]


def test_examples_that_cannot_be_written_leave_the_old_ones(config: Config, tmp_path: Path) -> None:
    stored, name = StoredResults.in_folder(config), next(iter(config.benchmarks))
    write_examples(stored, name, tmp_path)
    before = sorted((tmp_path / "data").rglob("*.js"))
    stored.trace(name, next(iter(config.runs))).write_bytes(b"torn")
    with pytest.raises(UserError, match="is not a readable Parquet file"):
        write_examples(stored, name, tmp_path)
    assert sorted((tmp_path / "data").rglob("*.js")) == before
    assert [path.name for path in (tmp_path / "data").iterdir()] == [name]


def test_the_papers_numbers_stand_apart(config: Config, tmp_path: Path) -> None:
    section = published_section(read_published(PUBLISHED), config.main_benchmarks, "strict")
    tables = Path(config.results, "tables")
    tables.mkdir()
    (tables / "main.md").write_text("| ours |\n| --- |\n| 99.99 |\n\n" + section)
    write_report(StoredResults.in_folder(config), tmp_path / "report")
    text = Words(tmp_path / "report/index.html").text
    assert text.index("Strict scoring") < text.index("not measured here") < text.index("32.05")
    assert "99.99" not in text


def test_significant_differences_are_marked(config: Config, tmp_path: Path) -> None:
    benchmark, run = next(iter(config.benchmarks)), list(config.runs)[-1]
    points = (80.0, 60.0, 20.0, 10.0, 30.0)
    names = (benchmark, "strict", run, "other", "member", "exact_match")
    better = Comparison(*names, 5, *points, "McNemar exact", 0.01, 0.02, 3, 0)
    tables = Path(config.results, "tables")
    tables.mkdir()
    (tables / "comparison.csv").write_text(
        to_csv(comparison_table([better, replace(better, against="third")], {}))
    )
    write_report(StoredResults.in_folder(config), tmp_path / "report")
    assert (tmp_path / "report/index.html").read_text().count("<sup>*</sup>") == 1


def test_the_command_says_where_the_page_is(config: Config, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", config.results], catch_exceptions=False)
    assert done.stdout.strip() == str(Path(config.results, "report/index.html"))
    assert Path(done.stdout.strip()).is_file()
