"""config/certified.yaml on the whole toy world: certificates, and what every table says."""

import time
from itertools import product
from pathlib import Path

import polars as pl
import pytest

from tests.workflow.conftest import ROOT, Workplace

BENCHMARKS = ("toy_qa", "toy_math", "toy_en_de")
RUNS = ("certified", "certified_sequence", "certified_half")
PREFERRED, MEMBERS = ("adafuse_b3", "learned", "adafuse", "ask"), ("mistral", "llama")


@pytest.mark.soak
def test_runs_are_chosen_with_certificates_and_tables_say_what_their_rows_can_show(
    tmp_path: Path, forked_python: str, record_testsuite_property
) -> None:
    place = Workplace(tmp_path, forked_python)
    for name in ("adafuse", "config"):  # its paths are relative to the project
        (tmp_path / name).symlink_to(ROOT / name)
    start = time.monotonic()
    done = place.snakemake("--configfile", "config/toy.yaml", "config/certified.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    record_testsuite_property("config/certified.yaml, seconds", time.monotonic() - start)
    tables = tmp_path / "results/certified/tables"
    tables = tmp_path / "results/certified/tables"
    main, compared, gained, tested = (
        pl.read_csv(tables / f"{name}.csv")
        for name in ("main", "comparison", "gain", "certificates")
    )
    scores = {row["run"]: row for row in main.to_dicts()}
    cells = tested.group_by("benchmark", "run", maintain_order=True).all().to_dicts()
    assert {(cell["benchmark"], cell["run"]) for cell in cells} == set(product(BENCHMARKS, RUNS))
    for cell in cells:
        (chosen,), (certified,) = set(cell["chosen"]), set(cell["certified"])
        passed = [run for run, ok in zip(cell["candidate"], cell["passed"], strict=True) if ok]
        low = zip(cell["p"], cell["level"], strict=True)
        assert [p is not None and p <= level for p, level in low] == cell["passed"]
        assert (chosen in passed) == certified and (certified or chosen in MEMBERS)
        if cell["run"] == "certified" and certified:
            assert chosen == next(run for run in (*PREFERRED, *MEMBERS) if run in passed)
        own, of_chosen = (scores[run][cell["benchmark"]] for run in (cell["run"], chosen))
        assert own == of_chosen
    assert any(set(cell["certified"]) == {True} for cell in cells)
    exact = compared.filter(pl.col("test") == "McNemar exact", pl.col("role") == "member")
    assert exact["p_noninferior"].null_count() == exact["rows_needed"].null_count() == 0
    assert (gained["bound"] - (100 - gained["beta"])).abs().max() < 1e-9
