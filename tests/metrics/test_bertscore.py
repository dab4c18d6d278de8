"""BERTScore: a stand-in for the package, and the sentences when it or its model is missing."""

import json
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from adafuse.benchmarks.shards import PreparedRow, write_prepared
from adafuse.cli.main import app
from adafuse.errors import UserError
from adafuse.metrics.bertscore import require_bertscore, with_bertscore
from adafuse.metrics.registry import metric_named
from adafuse.metrics.score import read_score
from adafuse.metrics.scorer import Judgement, Outcome
from adafuse.storage.parquet import write_rows
from adafuse.storage.traces import PROMPT_FIELDS
from adafuse.version import installed_version
from adafuse.workflow.layout import ResultsLayout
from adafuse.workflow.plan import Plan
from tests.support.configuration import values
from tests.support.hub_cache import COMMIT, cached_model

__all__ = ["values"]

MULTILINGUAL = "bert-base-multilingual-cased"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache without a hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The package: a text has F1 0.8, or 1 if it is a gold answer; the models it was told."""
    told: list[Any] = []

    def score(texts: list[str], answers: list[list[str]], **how: Any) -> Any:
        assert all(map(str.strip, texts))
        told.append(how)
        found = zip(texts, answers, strict=True)
        return None, None, np.array([1.0 if text in gold else 0.8 for text, gold in found])

    names = defaultdict(lambda: MULTILINGUAL, en="roberta-large")
    layers = {"roberta-large": 17, MULTILINGUAL: 9}
    utils = SimpleNamespace(lang2model=names, model2layers=layers)
    stand_in = SimpleNamespace(score=score, utils=utils, __version__="0.3.13")
    monkeypatch.setitem(sys.modules, "bert_score", stand_in)
    return told


@pytest.fixture
def model(hub: Path, tmp_path: Path) -> Path:
    """The model of all languages but English, in the cache."""
    source = tmp_path / "bert"
    source.mkdir()
    for name in ("config.json", "model.safetensors"):
        (source / name).write_text("{}")
    return cached_model(hub, MULTILINGUAL, str(source))


def test_empty_texts_count_as_0_and_the_model_is_named(package: list[Any], model: Path) -> None:
    outcomes = (Outcome("a", "z", ("x", "y"), 1.0), Outcome("b", " ", ("x",), 0.0))
    judged = with_bertscore(Judgement(outcomes, {}), "de")
    assert judged.metrics["bertscore_f1"].value == pytest.approx(40)
    transformers = installed_version("transformers")
    assert judged.details["bertscore"] == (
        f"bert-score 0.3.13 (transformers {transformers}), {MULTILINGUAL} ({COMMIT}), layer 9"
    )
    assert package == [{"model_type": str(model), "num_layers": 9}]
    assert metric_named("bertscore_f1").label == "BERTScore F1"


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bert_score", None)
    with pytest.raises(UserError, match=r"run pip install '\.\[bertscore\]' in"):
        require_bertscore("en")


def test_a_model_that_is_not_here_and_a_language_that_is_none_are_one_sentence(
    package: list[Any], model: Path
) -> None:
    with pytest.raises(UserError, match=r"BERTScore for 'en': model 'roberta-large' .* cannot be"):
        require_bertscore("en")
    with pytest.raises(UserError, match="'German' is not the code of a language, such as en or de"):
        require_bertscore("German")


def test_a_tokenizer_without_a_greatest_length_is_one_sentence(
    package: list[Any], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def score(*_: Any, **how: Any) -> None:
        raise OverflowError("int too big to convert")

    monkeypatch.setattr(sys.modules["bert_score"], "score", score)
    sentence = f"{MULTILINGUAL}, whose tokenizer names no greatest length; add model_max_length to"
    with pytest.raises(UserError, match=sentence):
        require_bertscore("de").f1([Outcome("a", "x", ("x",), 1.0)])


def test_a_file_is_scored_with_it(package: list[Any], model: Path, tmp_path: Path) -> None:
    row, said = tmp_path / "refs.jsonl", tmp_path / "said.jsonl"
    row.write_text(json.dumps({"id": "a", "question": "q?", "answer": "yes"}) + "\n")
    said.write_text(json.dumps({"id": "a", "text": "no"}) + "\n")
    options = ["--benchmark=squad", f"--references={row}", f"--predictions={said}", "--json"]
    done = CliRunner().invoke(app, ["score", *options, "--bertscore=de"])
    assert done.exit_code == 0, done.exception
    assert json.loads(done.stdout)["metrics"]["bertscore_f1"]["value"] == pytest.approx(80)


def test_the_score_step_adds_it_with_an_interval_of_50_rows_or_more(
    values: dict[str, Any], package: list[Any], model: Path, tmp_path: Path
) -> None:
    values["benchmarks"]["qa"]["bertscore"] = "de"
    layout = ResultsLayout(values["results"])
    rows = [PreparedRow(f"r{n}", "p", "q?", ("a",)) for n in range(50)]
    write_prepared(layout.rows("qa"), rows)
    texts = [
        {"id": row.id, "text": "ab"[n % 2], "stop_reason": "eos"} for n, row in enumerate(rows)
    ]
    write_rows(layout.trace("qa", "left"), PROMPT_FIELDS, texts, {})
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(values))
    cell = ["--protocol=strict", "--benchmark=qa", "--run=left"]
    done = CliRunner().invoke(app, ["step", "score", f"--config={config}", *cell])
    assert done.exit_code == 0, done.exception
    f1 = read_score(layout.score("strict", "qa", "left")).metrics["bertscore_f1"]
    assert f1.value == pytest.approx(90)
    assert f1.low is not None and f1.low < 90


def test_only_scores_and_what_is_made_of_them_depend_on_it(
    values: dict[str, Any], package: list[Any], model: Path
) -> None:
    def keys(language: str | None) -> tuple[dict[str, str], dict[str, str]]:
        values["benchmarks"]["qa"]["bertscore"] = language
        plan = Plan.of(values)
        assert not plan.missing
        found = {str(job): plan.key(job) for job in plan.all_jobs()}
        before = ("prepare", "shard", "decode", "merge", "datasets", "words_per_round")
        first = {
            job: key for job, key in found.items() if any(f"'{step}'" in job for step in before)
        }
        return first, {job: key for job, key in found.items() if job not in first}

    without, later = keys(None)
    with_it, changed = keys("de")
    assert with_it == without
    assert all(later[job] != key for job, key in changed.items())


def test_without_the_model_the_workflow_is_planned_and_nothing_runs(
    values: dict[str, Any], package: list[Any], hub: Path
) -> None:
    values["benchmarks"]["qa"]["bertscore"] = "fr"
    plan = Plan.of(values)
    (reason,) = plan.missing.values()
    assert reason.startswith(f"BERTScore for 'fr': model {MULTILINGUAL!r}")
    assert all(plan.key(job) for job in plan.all_jobs())
    with pytest.raises(UserError, match="BERTScore for 'fr'"):
        plan.start()
