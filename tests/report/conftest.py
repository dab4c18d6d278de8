"""A results folder as the workflow leaves it, made by hand, and the explorer in a browser."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Browser

from adafuse.config.config import Config
from adafuse.metrics.intervals import Estimate, wilson
from adafuse.metrics.score import Score, write_outcomes, write_score
from adafuse.metrics.scorer import Outcome
from adafuse.records.result import Result, Round
from adafuse.report import experiments
from adafuse.report.experiments import Experiment, find_experiment
from adafuse.report.explorer import (
    BenchmarkEntry,
    Manifest,
    Question,
    RunEntry,
    RunFiles,
    write_benchmark,
    write_manifest,
)
from adafuse.report.pages import write_explorer
from adafuse.storage.parquet import write_rows
from adafuse.storage.traces import RESULT_FIELDS, result_columns
from adafuse.workflow.decode import TRACE_FIELDS
from tests.support.browser import DESKTOP, Tab
from tests.support.made_up import ANSWERS, FUSED, PROMPTS, RIGHT, SINGLE, identifiers

PUBLISHED = Path(__file__).parents[2] / "config" / "published.yaml"
JOB = {"batch_size": 1, "dtype": "float32", "devices": ["cpu"], "engine": "tree"}
RUNS: dict[str, dict[str, Any]] = {
    "m": {"method": "single", "models": ["m"]},
    "l": {"method": "single", "models": ["l"]},
    "both": {"method": "adafuse", "models": ["m", "l"]},
    "both_b3": {"method": "adafuse", "models": ["m", "l"], "options": {"branching": 3}},
    "beams": {"method": "beam_scaling", "models": ["m", "l"], "options": {"width": 5}},
    "oracle": {"method": "best_of", "models": ["m", "l"]},
    "top2": {"method": "development_pair", "models": ["m", "l"], "options": {"runs": ["both"]}},
}


@dataclass
class World:
    """Results of the runs `RUNS` on any benchmarks; `experiment` gives one over them."""

    root: Path
    runs: dict[str, dict[str, Any]] = field(default_factory=lambda: dict(RUNS))
    protocols: tuple[str, ...] = ("strict",)
    published_numbers: str | None = str(PUBLISHED)
    timed: bool = True

    def config(self, benchmarks: Sequence[str], section: dict[str, Any]) -> Config:
        task = {
            "source": {"file": "qa.jsonl"},
            "prompt": "{question}",
            "max_new_tokens": 4,
            "scorer": "squad",
            "timed": self.timed,
        }
        rows = {name: task | {"development": "other_rows"} for name in benchmarks}
        return Config.model_validate(
            {
                "results": str(self.root),
                "models": {"m": {"path": "a/m"}, "l": {"path": "a/l"}},
                "benchmarks": rows | {"other_rows": task},
                "main": {"runs": ["m"]},
                "runs": self.runs,
                "protocols": self.protocols,
                "published_numbers": self.published_numbers,
                "experiments": {"figure": section},
            }
        )

    def experiment(
        self, kind: str, benchmarks: Sequence[str], runs: Sequence[str], **more: Any
    ) -> Experiment:
        section = {"title": "A figure", "kind": kind, "benchmarks": benchmarks, "runs": runs} | more
        return find_experiment(self.config(benchmarks, section), "figure")

    def points(
        self, kind: str, benchmarks: Sequence[str], runs: Sequence[str], **more: Any
    ) -> list[SimpleNamespace]:
        """The rows of what an experiment measures."""
        measure = getattr(experiments, {"words_per_round": "words"}.get(kind, kind))
        table = measure(self.experiment(kind, benchmarks, runs, **more))
        return [SimpleNamespace(**row) for row in table.iter_rows(named=True)]

    def store_config(self, experiment: Experiment) -> Path:
        path = self.root / "config.json"
        path.write_text(json.dumps(experiment.config.model_dump(mode="json")))
        return path

    def score(
        self, benchmark: str, run: str, right: str, protocol: str = "strict", failed: int = 0
    ) -> None:
        """Store a score and its outcomes; `right` is a text of 1s and 0s."""
        values = [float(each) for each in right]
        low, high = wilson(int(sum(values)), len(values))
        value = 100 * sum(values) / len(values)
        metrics = {"exact_match": Estimate(value, 100 * low, 100 * high)}
        score = Score(
            benchmark, run, protocol, len(values), 0, 0, 0, failed, metrics, "exact_match", {}
        )
        path = self.root / "scores" / protocol / benchmark / f"{run}.json"
        write_score(path, score)
        outcomes = [Outcome(f"r{i}", "x", ("x",), each) for i, each in enumerate(values)]
        write_outcomes(path.with_suffix(".outcomes.parquet"), outcomes, {})

    def trace(
        self,
        benchmark: str,
        run: str,
        seconds: Sequence[float] = (1.0,),
        words: Sequence[int] = (1,),
        failed: int = 0,
        forwards: tuple[int, ...] = (1,),
        evaluated: tuple[int, ...] | None = None,
        shards: Sequence[dict[str, Any]] = ({},),
    ) -> Path:
        """Store a merged trace; `shards` say how each was decoded otherwise than `JOB` says."""
        rounds = tuple(Round((), 0, count, ()) for count in words)
        rows = [
            self._row(benchmark, run, i, each, rounds, forwards, evaluated)
            for i, each in enumerate(seconds)
        ]
        rows += [
            self._row(benchmark, run, len(rows) + i, 99.0, ()) | {"stop_reason": "error"}
            for i in range(failed)
        ]
        described = [
            {
                "job": JOB | shard,
                "versions": {"torch": shard.get("torch", "2.13.0")},
                "place": {"gpus": shard.get("gpus", [])},
                **{name: shard.get(name, 0) for name in ("resumed", "reused")},
            }
            for shard in shards
        ]
        path = self.root / "traces" / benchmark / f"{run}.parquet"
        write_rows(path, TRACE_FIELDS, rows, {"digest": "x", "shards": described})
        return path

    def _row(
        self,
        benchmark: str,
        run: str,
        number: int,
        seconds: float,
        rounds: tuple[Round, ...],
        forwards: tuple[int, ...] = (1,),
        evaluated: tuple[int, ...] | None = None,
    ) -> dict[str, Any]:
        tokens = (1,) * len(forwards)
        result = Result("x", "eos", rounds, tokens, tokens, forwards, seconds, evaluated=evaluated)
        names = {"id": f"r{number}", "benchmark": benchmark, "run": run, "shard": 0}
        return names | {"prompt_sha256": "0"} | result_columns(result)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with explorer.html: 45 questions, a fused run and a single one."""
    import pyarrow as pa

    folder = tmp_path_factory.mktemp("site")
    files = []
    for run, results in {"fused": FUSED, "single": SINGLE}.items():
        rows = [
            {"id": name, **result_columns(result)}
            for name, result in zip(identifiers(), results, strict=True)
        ]
        trace, outcomes = folder / f"{run}.parquet", folder / f"{run}.outcomes.parquet"
        write_rows(trace, [pa.field("id", pa.string()), *RESULT_FIELDS], rows, {})
        values = [
            Outcome(row["id"], row["text"], ("x",), right)
            for row, right in zip(rows, RIGHT[run], strict=True)
        ]
        write_outcomes(outcomes, values, {})
        files.append(RunFiles(run, trace, {"strict": outcomes}))
    asked = zip(identifiers(), PROMPTS, ANSWERS, strict=True)
    questions = [Question(name, prompt, answers) for name, prompt, answers in asked]
    write_benchmark(folder / "data", "quiz", questions, files)
    entries = {
        "fused": RunEntry("adafuse", ("ant", "bee"), 0.7),
        "single": RunEntry("single", ("ant",)),
    }
    quiz = BenchmarkEntry(
        "quiz", len(questions), ("fused", "single"), label="exact match", binary=True
    )
    write_manifest(folder / "data", Manifest([quiz], entries, ["ant", "bee"], ["strict"]))
    write_explorer(folder, report=False)
    return folder


@pytest.fixture
def tab(browser: Browser, site: Path) -> Iterator[Tab]:
    """A tab on the folder; whatever a test does, the console stays silent."""
    tab = Tab.opened(browser, site, DESKTOP, dark=False)
    yield tab
    tab.assert_clean()
    tab.page.context.close()


@pytest.fixture
def explorer(tab: Tab) -> Callable[..., Tab]:
    """Opens the explorer with parts of an address."""

    def opened(**address: object) -> Tab:
        said = "&".join(f"{name}={value}" for name, value in address.items())
        tab.open("explorer.html", f"#{said}" if said else "")
        return tab

    return opened
