"""Prompts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.benchmarks.prompts import Example, Frame, Shots, check_template, make_frame
from adafuse.errors import UserError

QA = "Question: {question}\nAnswer:"
STEPS = "Question: {question}\nThink aloud\n"
TEXT = "Be brief.\n\nQuestion: how many?\nAnswer: two\n"
SHOTS = Shots(TEXT, "Be brief.", (Example("how many?", "two"),))


@given(st.text(), st.text())
def test_the_question_stands_in_its_place_unchanged(head: str, question: str) -> None:
    prompt = Frame(head, "\n\\boxed{} {question}\nAnswer:").prompt(question)
    assert prompt == head + "\n\\boxed{} " + question + "\nAnswer:"


@pytest.mark.parametrize("template", ["Answer:", "{question} {question}", "{Question}"])
def test_a_template_has_exactly_one_place_for_the_question(template: str) -> None:
    with pytest.raises(UserError, match="exactly once"):
        check_template(template, "benchmarks.qa")


def test_without_shots_the_prompt_is_the_template() -> None:
    assert make_frame(QA, None, "strict") == make_frame(QA, None, "published") == Frame("", QA)


def test_published_keeps_the_file_and_adds_a_blank_line() -> None:
    prompt = make_frame(QA, SHOTS, "published").prompt("why?")
    assert prompt == TEXT + "\n\nQuestion: why?\nAnswer:"
    assert "two\n\n\nQuestion: why?" in prompt


def test_strict_lays_out_examples_as_the_question() -> None:
    assert make_frame(QA, SHOTS, "strict").prompt("why?") == (
        "Be brief.\n\nQuestion: how many?\nAnswer: two\n\nQuestion: why?\nAnswer:"
    )


def test_an_answer_on_a_line_of_its_own_gets_no_space() -> None:
    prompt = make_frame(STEPS, SHOTS, "strict").prompt("why?")
    assert prompt.startswith("Be brief.\n\nQuestion: how many?\nThink aloud\ntwo\n\nQuestion: why?")


def test_an_instruction_alone_and_examples_alone_leave_no_gap() -> None:
    alone = Shots("Be brief.\n", "Be brief.", ())
    assert make_frame(QA, alone, "strict").prompt("x") == "Be brief.\n\nQuestion: x\nAnswer:"
    bare = Shots("", "", SHOTS.examples)
    assert make_frame(QA, bare, "strict").prompt("x").startswith("Question: how many?")
