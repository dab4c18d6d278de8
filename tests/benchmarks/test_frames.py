"""Prompts."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.benchmarks.frames import Frame, check_template, read_shots
from adafuse.errors import UserError


@given(st.text(), st.text())
def test_the_question_stands_in_its_place_unchanged(shots: str, question: str) -> None:
    prompt = Frame(shots, "\n\\boxed{} {question}\nAnswer:").prompt(question)
    assert prompt == shots + "\n\\boxed{} " + question + "\nAnswer:"


@pytest.mark.parametrize("template", ["Answer:", "{question} {question}", "{Question}"])
def test_a_template_has_exactly_one_place_for_the_question(template: str) -> None:
    with pytest.raises(UserError, match="exactly once"):
        check_template(template, "benchmarks.qa")


def test_newlines_at_the_end_of_the_shots_do_not_change_the_prompt(tmp_path: Path) -> None:
    path = tmp_path / "shots.txt"
    for ending in ("", "\n", "\n\n"):
        path.write_text(f"Question: x\nAnswer: y{ending}")
        assert read_shots(path) == "Question: x\nAnswer: y"


def test_shots_that_are_no_text_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "shots.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="shots file"):
        read_shots(tmp_path / "shots.txt")
