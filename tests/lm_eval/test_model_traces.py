"""Traces of what the harness asked, and what is kept until they are written."""

import gc
import re
from types import SimpleNamespace

import pytest

from adafuse.cli.main import app
from adafuse.records.result import Round
from adafuse.report.pages import DATA, write_loose_report
from adafuse.storage.parquet import read_metadata, read_rows
from adafuse.storage.traces import ORIGIN
from tests.lm_eval.tasks import MODELS, QA, task, texts

pytest.importorskip("lm_eval", reason="needs adafuse[lm-eval]")

from typer.testing import CliRunner

from adafuse.lm_eval.model import AdaFuseLM


def test_a_trace_has_a_row_per_request_that_show_understands(evaluate, tmp_path):
    out = tmp_path / "traces/out.parquet"
    _, samples = evaluate(task(QA), model_args={"trace": str(out)})
    rows = read_rows(out)
    assert [row["id"] for row in rows] == [f"toy_qa/{number}/0" for number in range(4)]
    assert {row["id"]: row["text"] for row in rows} == {
        f"toy_qa/{sample['doc_id']}/0": text
        for sample, text in zip(samples, texts(samples), strict=True)
    }
    assert read_metadata(out)["settings"]["models"] == MODELS.split("+")
    assert read_metadata(out).keys() == {"settings", *ORIGIN}
    assert all(row["prompt"].endswith("Answer:") for row in rows)
    shown = CliRunner().invoke(app, ["show", str(out), "--id", "toy_qa/1/0"])
    assert "example toy_qa/1/0" in shown.output
    assert "round 1" in shown.output


def test_a_report_of_a_trace_knows_its_tau(evaluate, tmp_path):
    out = tmp_path / "out.parquet"
    evaluate(task(QA), model_args={"trace": str(out), "tau": 0.5})
    write_loose_report([out], tmp_path / "report")
    (manifest,) = (tmp_path / "report" / DATA).glob("manifest*")
    assert re.search(r'"tau": ?0.5', manifest.read_text(encoding="utf-8"))


def instance(number):
    """A request of a few tokens."""
    from lm_eval.api.instance import Instance

    asked = (f"Question: {number}?\nAnswer:", {"until": ["\n"], "max_gen_toks": 2})
    return Instance("generate_until", {}, asked, 0, ("toy", number, 1))


@pytest.mark.parametrize("traced", [True, False])
def test_rounds_are_not_held_until_the_last_request(tmp_path, traced):
    more = {"trace": str(tmp_path / "out.parquet")} if traced else {}
    lm = AdaFuseLM(models=MODELS, batch_size=1, **more)
    alive = []

    def count(*_):
        alive.append(sum(type(each) is Round for each in gc.get_objects()))

    lm.cache_hook = SimpleNamespace(add_partial=count)
    lm.generate_until([instance(number) for number in range(8)])
    assert len(alive) == 8
    assert alive[-1] <= alive[1]


def test_a_second_call_writes_its_rows_behind_those_of_the_first(tmp_path):
    out = tmp_path / "out.parquet"
    lm = AdaFuseLM(models=MODELS, batch_size=2, trace=str(out))
    lm.generate_until([instance(number) for number in (3, 1)])
    lm.generate_until([instance(number) for number in (1, 0)])
    assert [row["id"] for row in read_rows(out)] == ["toy/3/0", "toy/1/0", "toy/0/0"]


def test_a_repeated_request_is_decoded_once(evaluate, tmp_path):
    out = tmp_path / "out.parquet"
    _, samples = evaluate(task(QA, repeats=3), model_args={"trace": str(out)}, limit=2)
    assert [len(sample["resps"][0]) for sample in samples] == [3, 3]
    assert len(read_rows(out)) == 2
