"""What is promised of the plug-ins of this project: `python -m pytest tests`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from adafuse import Ensemble
from adafuse.config.reading import read_config
from adafuse.metrics.registry import SCORERS
from adafuse.metrics.scorer import Prediction

PROMPTS = ["Question: who founded Orrin?\nAnswer:", "Question: where is the lake?\nAnswer:"]
CONFIG = read_config(Path(__file__).parents[1] / "config" / "config.yaml")  # loads the plug-ins


@pytest.fixture(scope="module")
def pair() -> Iterator[Ensemble]:
    with Ensemble.from_pretrained([model.path for model in CONFIG.models.values()]) as ensemble:
        yield ensemble


@pytest.mark.parametrize("name", ["myrule", "mymethod"])
def test_both_engines_decode_the_same(pair: Ensemble, name: str) -> None:
    run = CONFIG.runs[name]
    settings = {"method": run.method, "max_new_tokens": 8, **run.options}
    quick = pair.generate(PROMPTS, batch_size=2, **settings)
    slow = pair.generate(PROMPTS, batch_size=1, engine="reference", **settings)
    assert [result.text for result in quick] == [result.text for result in slow]
    assert [result.error for result in quick] == [None, None]


def test_the_word_with_the_lowest_highest_nll_is_committed(pair: Ensemble) -> None:
    for result in pair.generate(PROMPTS, method="mymethod", max_new_tokens=8):
        for taken in result.rounds:
            fused = [max(candidate.nll) for candidate in taken.candidates]
            assert fused[taken.selected] == min(fused)


def test_a_text_that_contains_an_answer_is_right() -> None:
    rows = [Prediction("1", " In Rome.", ("rome",)), Prediction("2", " No idea.", ("Oslo",))]
    assert SCORERS["myscorer"].score("strict", rows).metrics["contained"].value == 50
