"""The package writes, scores and tabulates what it did when the record was made."""

import copy

import pytest

from tests.guard.check import changes
from tests.guard.parts import SHARED
from tests.guard.store import Record, differences


@pytest.mark.soak
def test_every_method_decodes_as_recorded() -> None:
    assert not changes("quick")


@pytest.mark.soak
def test_every_run_of_the_toy_configuration_decodes_as_recorded() -> None:
    assert not changes("runs")


@pytest.mark.soak
def test_the_real_benchmarks_give_what_is_recorded() -> None:
    if not SHARED.is_dir():
        pytest.skip(f"the real benchmarks are not at {SHARED}")
    assert not changes("smoke")


def test_a_changed_number_a_changed_text_and_a_missing_run_are_named() -> None:
    record = Record.load("demo")
    now = copy.deepcopy(record)
    for name, rows in now.rows.items():
        rows[:] = [{"id": f"{name}-{n}", **row} for n, row in enumerate(rows)]
    assert not [*differences(now, record)]
    now.rows["toy_qa/adafuse"][3]["nll"] += 3e-5
    now.rows["toy_math/fixed_1"][0]["text"] ^= 1
    now.tables["tables/main"][0]["toy_qa"] = "1.0"
    del now.tables["ids/toy_de_en/llama"]
    found = "\n".join(differences(now, record))
    assert found.count("\n") == 3
    assert "toy_qa/adafuse, row toy_qa/adafuse-3: nll is" in found
    assert "toy_math/fixed_1, row toy_math/fixed_1-0: text" in found
    assert "tables/main, line 1 (mistral): toy_qa is 1.0, recorded is" in found
    assert "ids/toy_de_en/llama: missing" in found
