"""The digest of a decode job."""

import importlib
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from adafuse import plugins
from adafuse.config.reading import parse_config
from adafuse.decoding.fusion import FUSION_RULES
from adafuse.metrics.registry import SCORERS
from adafuse.workflow import digest as digest_module
from adafuse.workflow.digest import decode_digest, scoring_version
from adafuse.workflow.jobs import DecodeJob, decode_job
from adafuse.workflow.plan import Plan
from tests.support.configuration import weight_file
from tools.docs.tables import JOB

Change = Callable[[dict[str, Any]], object]


def digest(values: dict[str, Any]) -> str:
    return decode_digest(decode_job(parse_config(values), "qa", "both"), "rows")


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v["runs"]["both"]["options"].update(tau=0.6),
        lambda v: v["runs"]["both"]["options"].update(fusion="mixture"),
        lambda v: v["runs"]["both"].update(method="fixed_length", options={"words": 1}),
        lambda v: v["runs"]["both"].update(models=["right", "left"]),
        lambda v: v["runs"]["both"].update(models=["left", "hub"]),
        lambda v: v["runs"]["both"].update(weights=[1, 2]),
        lambda v: v["runs"]["both"].update(max_rounds=4),
        lambda v: v["models"]["left"].update(chat=True),
        lambda v: v["models"]["left"].update(chat_date="2026-01-31"),
        lambda v: v["models"]["left"].update(chat="auto", chat_template_kwargs={"thinks": False}),
        lambda v: v["models"]["left"].update(chat=True, thoughts={"begin": "a", "end": "b"}),
        lambda v: v["models"]["left"].update(quantization="int4"),
        lambda v: v["models"]["left"].update(trust_remote_code=True),
        lambda v: v["benchmarks"]["qa"].update(stop=["\n", "."]),
        lambda v: v["benchmarks"]["qa"].update(max_new_tokens=9),
        lambda v: v["decode"].update(engine="reference"),
        lambda v: v["decode"].update(batch_size=2),
        lambda v: v["decode"].update(dtype="bfloat16"),
    ],
)
def test_whatever_may_change_a_result_changes_the_digest(
    values: dict[str, Any], change: Change
) -> None:
    before = digest(values)
    change(values)
    assert digest(values) != before


def test_an_adapter_counts_by_its_content(values: dict[str, Any], tmp_path: Path) -> None:
    def digest(folder: Path, content: str) -> str:
        folder.mkdir(exist_ok=True)
        (folder / "adapter_config.json").write_text(content)
        (folder / "adapter_model.safetensors").write_bytes(b"weights")
        values["models"]["left"]["adapter"] = str(folder)
        return Plan.of(values).digest("qa", "both", 0)

    plain = Plan.of(values).digest("qa", "both", 0)
    lora, other = (json.dumps({"peft_type": "LORA", "r": rank}) for rank in (1, 2))
    one = digest(tmp_path / "one", lora)
    assert digest(tmp_path / "other", lora) == one != plain
    assert digest(tmp_path / "one", other) not in (one, plain)


def test_the_code_of_another_package_changes_it(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "ruler.py"
    code.write_text("def least(candidate, weights):\n    return max(candidate.nll)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(FUSION_RULES, "least", importlib.import_module("ruler").least)
    values["runs"]["both"]["options"]["fusion"] = "least"
    before = digest(values)
    plugins._code_digest.cache_clear()
    assert digest(values) == before
    code.write_text(code.read_text() + "# the same, in another file\n")
    plugins._code_digest.cache_clear()
    assert digest(values) != before
    assert decode_job(parse_config(values), "qa", "both").record()["plugins"].keys() == {"ruler"}


def test_the_page_on_traces_names_every_key_of_a_job(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DecodeJob, "plugins", {"ruler": "code 1"})
    values["models"]["left"].update(chat="auto", chat_template_kwargs={"thinks": None})
    values["models"]["left"].update(thoughts={"begin": "a", "end": "b"})
    job = decode_job(parse_config(values), "qa", "both")
    assert job.record()["chat_template_kwargs"] == [{"thinks": None}, None]
    assert replace(job, timed=True, fitted_on="development").record().keys() == JOB.keys()


def test_the_code_of_another_package_changes_what_its_scorer_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = scoring_version("nq")
    module = ModuleType("judge")
    module.__file__ = str(tmp_path / "judge.py")
    (tmp_path / "judge.py").write_text("x = 1\n")
    monkeypatch.setitem(sys.modules, "judge", module)
    monkeypatch.setitem(plugins._BROUGHT, id(SCORERS["nq"]), (SCORERS["nq"], "judge"))
    assert str(scoring_version("nq")).startswith(f"{own}, {{'judge': 'code ")


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v["decode"].update(device="cuda:0", gpu=1),
        lambda v: v["models"]["left"].update(device="cuda:1"),
        lambda v: (v["models"]["left"].update(device="balanced"), v["decode"].update(gpu=2)),
        lambda v: v["models"]["left"].update(allow_pickle=True),
        lambda v: v["runs"]["both"]["options"].update(max_words=3, branching=1),  # the defaults
        lambda v: v["benchmarks"]["qa"].update(scorer="translation_13a"),
        lambda v: v.update(note="x"),
        lambda v: v["runs"].pop("far"),
        lambda v: v["models"]["left"].update(chat_template_kwargs={}),
    ],
)
def test_what_cannot_change_a_result_leaves_the_digest(
    values: dict[str, Any], change: Change
) -> None:
    before = digest(values)
    change(values)
    assert digest(values) == before


def test_a_new_engine_version_is_another_result(values: dict[str, Any], monkeypatch) -> None:
    before = digest(values)
    monkeypatch.setattr(digest_module, "ENGINE_VERSION", digest_module.ENGINE_VERSION + 1)
    assert digest(values) != before


def test_votes_are_counted_by_the_scorer_of_the_benchmark(
    values: dict[str, Any], monkeypatch
) -> None:
    values["runs"]["both"] = {"method": "self_consistency", "models": ["left"]}
    job = decode_job(parse_config(values), "qa", "both")
    assert job.options["scorer"] == values["benchmarks"]["qa"]["scorer"]
    before = digest(values)
    monkeypatch.setattr(digest_module, "SCORING_VERSION", 99)
    counted_otherwise = digest(values)
    assert counted_otherwise != before
    values["runs"]["both"]["options"] = {"select": "likelihood"}
    likeliest = digest(values)
    monkeypatch.undo()
    assert digest(values) == likeliest  # no answer is compared


def test_runs_shards_and_rows_have_digests_of_their_own(values: dict[str, Any]) -> None:
    plan = Plan.of(values)
    digests = [d for run in plan.config.runs for d in plan.digests("qa", run)]
    assert len(set(digests)) == len(plan.config.runs) * 2


def test_a_revision_is_part_of_a_hub_model(values: dict[str, Any]) -> None:
    before = decode_digest(decode_job(parse_config(values), "qa", "far"), "rows")
    values["models"]["hub"]["revision"] = "def"
    assert decode_digest(decode_job(parse_config(values), "qa", "far"), "rows") != before


def blended(values: dict[str, Any], folder: Path, **options: Any) -> str:
    """The digest of a run that names checkpoints in its options."""
    options = {"ranker": str(folder), "fuser": "org/fuser"} | options
    values["runs"]["right"] = {"method": "single", "models": ["right"]}
    values["runs"]["both"].update(method="llm_blender", options=options)
    return digest(values)


@pytest.fixture
def ranker(values: dict[str, Any], tmp_path: Path) -> Path:
    """A folder that looks like a ranker."""
    folder = shutil.copytree(values["models"]["left"]["path"], tmp_path / "ranker")
    (folder / "config.json").write_text('{"model_type": "deberta-v2"}')
    return folder


def test_a_checkpoint_of_an_option_counts_by_its_content(
    values: dict[str, Any], ranker: Path, tmp_path: Path
) -> None:
    before = blended(values, ranker)
    moved = shutil.copytree(ranker, tmp_path / "elsewhere")
    assert blended(values, moved) == before
    (moved / "model.safetensors").write_bytes(weight_file("others"))
    assert blended(values, shutil.move(moved, tmp_path / "changed")) != before


def test_a_checkpoint_of_the_hub_counts_by_its_name_and_revision(
    values: dict[str, Any], ranker: Path
) -> None:
    given = ({}, {"fuser": "org/other"}, {"fuser_revision": "abc"}, {"fuser_revision": "def"})
    assert len({blended(values, ranker, **options) for options in given}) == 4


def test_a_fuser_that_is_not_used_does_not_count(values: dict[str, Any], ranker: Path) -> None:
    given = ({}, {"fuser": "org/other"}, {"fuser_revision": "abc"}, {"fuser": "/nowhere"})
    digests = {blended(values, ranker, rank_only=True, **options) for options in given}
    assert len(digests) == 1
    assert blended(values, ranker, rank_only=True, beams=2) not in digests
    assert blended(values, ranker) not in digests
