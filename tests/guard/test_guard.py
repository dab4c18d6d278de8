"""The package writes, scores and tabulates what it did when the record was made."""

import pytest

from tests.guard.__main__ import made
from tests.guard.record import differences, load
from tests.workflow.conftest import ROOT

SHARED = ROOT.parent / "shared/data/benchmarks"


@pytest.mark.soak
@pytest.mark.parametrize("part", ["quick", "runs", "smoke"])
def test_every_method_run_and_table_is_as_recorded(part: str) -> None:
    if part == "smoke" and not SHARED.is_dir():
        pytest.skip(f"the real benchmarks are not at {SHARED}")
    assert not [*differences(made(part), load(part))]


def test_a_changed_number_a_changed_text_and_a_missing_row_are_named() -> None:
    record = load("demo")
    changed = {key: value for key, value in record.items() if "toy_de_en/llama, row" not in key}
    (nll, *_), (text, *_) = (
        [key for key in record if key.startswith("toy_qa/adafuse, row") and key.endswith(end)]
        for end in (": nll", ": text")
    )
    cell = "tables/main, line 1: toy_qa"
    assert not [*differences(record, record)]
    assert not [*differences({**record, nll: str(float(record[nll]) + 5e-6)}, record)]
    changed |= {nll: str(float(record[nll]) + 3e-5), text: "0", cell: "1.0"}
    found = [*differences(changed, record)]
    assert {f"{cell} is 1.0, recorded is {record[cell]}"} < set(found)
    assert {line.partition(" is ")[0] for line in found if "missing" not in line} == {
        nll, text, cell
    }  # fmt: skip
    assert sum("toy_de_en/llama, row" in line for line in found) == len(record) - len(changed)
