"""The page of real results, and the file of decoded rows that it is made from."""

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from adafuse.errors import UserError
from adafuse.storage.parquet import read_metadata
from adafuse.workflow.decode import decode_shard
from adafuse.workflow.plan import Plan
from adafuse.workflow.steps import Job
from tests.support.small_workflow import configuration
from tools.docs.decoded_rows import keep, restore, use
from tools.docs.results import page, run_step, score_again

TABLES = ("main.csv", "comparison.csv", "gain.csv", "certificates.csv")

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def decoded(tmp_path_factory):
    """A results folder with the traces of three runs, and what they give."""
    folder = tmp_path_factory.mktemp("decoded")
    plan = Plan.of(settings(folder))
    for table in ("compare", "compare_runs", "certificates"):
        make(plan, Job.of(table))
    return plan


def make(plan, job):
    """Run a step after those that it reads, as Snakemake does."""
    for before in plan.reads(job):
        if not all(file.exists() for file in plan.outputs(before)):
            make(plan, before)
    digest = {}
    if job.step == "decode":
        benchmark, name, shard = job.values
        digest = {"digest": plan.digest(benchmark, name, int(shard))}
    run_step(plan, job, **digest)


def settings(folder, prompt="Question: {question}\nAnswer:"):
    values = configuration(shards=2)
    task = values["benchmarks"]["qa"]
    task["source"] = {"file": "adafuse/toy/benchmarks/toy_qa.jsonl"}
    task |= {"sample": {"size": 6}, "prompt": prompt}
    values["runs"]["mistral"] = {"method": "single", "models": ["mistral"]}
    both = {"models": ["mistral", "llama"]}
    values["runs"]["best"] = both | {"method": "best_of"}
    values["runs"]["certified"] = both | {"method": "certified", "options": {"runs": ["adafuse"]}}
    values["benchmarks"]["more"] = task | {"sample": {"size": 6, "skip": 6}}
    task["calibration"] = "more"
    pairs = {"title": "Pairs", "kind": "paired", "benchmarks": ["qa"], "runs": ["llama", "adafuse"]}
    return values | {
        "results": str(folder),
        "protocols": ["strict"],
        "main": {"benchmarks": ["qa"]},
        "experiments": {"pairs": pairs},
    }


def test_rows_that_were_kept_give_the_tables_of_the_traces_without_any_model(decoded, tmp_path):
    rows = tmp_path / "rows.parquet"
    assert keep(decoded.config, rows) == {"qa": 18, "more": 18}
    folder = tmp_path / "again"
    values = settings(folder)
    for name in values["models"]:
        values["models"][name]["path"] = f"hub/{name}"  # which is not here
    shown = score_again(Plan.of(values).config, rows, folder)
    assert shown.main_benchmarks == ["qa"]
    for table in TABLES:
        again = (folder / "tables" / table).read_bytes()
        assert again == decoded.layout.table(table).read_bytes()
    written = page(shown)
    assert "| qa | llama | adafuse | -33.3 [" in written
    assert "### certified on qa" in written
    assert "| adafuse | 1." in written.split("## Costs")[1]


def test_rows_that_were_kept_are_not_decoded_again_elsewhere(decoded, tmp_path):
    rows = tmp_path / "rows.parquet"
    keep(decoded.config, rows)
    plan = Plan.of(settings(tmp_path / "elsewhere"))
    use(tmp_path / "elsewhere", rows)
    for shard in (0, 1):
        run_step(plan, Job.of("shard", "qa", shard))
        decode_shard(
            plan.decode_job("qa", "adafuse"), shard, plan.layout.shard_rows("qa", shard),
            plan.layout.shard_trace("qa", "adafuse", shard), traces=plan.layout.traces,
            digest=plan.digest("qa", "adafuse", shard), decoder=lambda *_: pytest.fail("decoded"),
        )  # fmt: skip
    assert not plan.orphans()
    before = pq.read_table(rows)
    assert pc.sum(before["rounds_fused"]).as_py()
    keep(plan.config, rows)
    assert pq.read_table(rows) == before


def test_rows_that_a_folder_does_not_have_stay_if_they_are_still_wanted(decoded, tmp_path):
    rows = tmp_path / "rows.parquet"
    keep(decoded.config, rows)
    before = [pq.read_table(rows), read_metadata(rows)]
    elsewhere = Plan.of(settings(tmp_path / "elsewhere")).config
    assert keep(elsewhere, rows) == {"qa": 18, "more": 18}
    assert [pq.read_table(rows), read_metadata(rows)] == before
    assert keep(decoded.config, rows) == {"qa": 18, "more": 18}
    other = Plan.of(settings(tmp_path / "other", "Q: {question}\nA:")).config
    assert not keep(other, rows)["qa"]


def test_rows_of_an_unfinished_run_are_kept_but_not_shown(decoded, tmp_path):
    rows = tmp_path / "rows.parquet"
    values = settings(decoded.config.results)
    values["runs"]["fixed"] = {"method": "fixed_length", "models": ["mistral", "llama"]}
    config = Plan.of(values).config
    assert keep(config, rows) == {"qa": 18, "more": 18}
    with pytest.raises(UserError, match=r"no benchmark has all rows of all runs of the main table"):
        score_again(config, rows, tmp_path / "again")


def test_rows_of_other_prompts_are_refused(decoded, tmp_path):
    rows = tmp_path / "rows.parquet"
    keep(decoded.config, rows)
    other = Plan.of(settings(tmp_path / "again", "Q: {question}\nA:"))
    with pytest.raises(UserError, match=r"^the prompts of 'qa' are not those that were decoded"):
        restore(other, rows)
