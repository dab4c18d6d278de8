"""The figure of the method is what the toy models decode."""

import re
from pathlib import Path

import pytest

from adafuse.records.result import Result
from tools.docs import figure

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def result() -> Result:
    return figure.decode()


@pytest.fixture(scope="module")
def svg(result: Result) -> str:
    return figure.draw(result).decode()


def texts(svg: str) -> list[str]:
    return re.findall(r"<text [^>]*>([^<]*)</text>", svg)


def test_the_committed_figure_says_what_the_models_say_today(svg: str) -> None:
    committed = (ROOT / figure.FILE).read_text(encoding="utf-8")
    assert texts(committed) == texts(svg)


def test_the_figure_shows_every_candidate_and_its_score(result: Result, svg: str) -> None:
    shown = " ".join(texts(svg))
    candidates = [each for taken in result.rounds for each in taken.candidates]
    assert len(candidates) > 4
    for candidate in candidates:
        assert figure.shown(candidate) in shown
        assert f"F {candidate.fused:.2f}" in shown


def test_the_example_has_a_sure_and_an_unsure_model_and_a_right_answer(result: Result) -> None:
    tau = figure.TAU
    first, second = (margins[0] for margins in result.rounds[0].margins)
    assert first < tau <= second
    assert result.text == " Mount Skofell"


def test_the_figure_is_white_behind_its_text(svg: str) -> None:
    assert 'fill="white"' in svg.split("<text")[0]
