"""Prompts."""

from hypothesis import given
from hypothesis import strategies as st

from adafuse.benchmarks.prompts import (
    FewShotExample,
    FewShotFile,
    PromptTemplate,
    make_prompt_template,
)

QA = "Question: {question}\nAnswer:"
STEPS = "Question: {question}\nThink aloud\n"
TEXT = "Be brief.\n\nQuestion: how many?\nAnswer: two\n"
SHOTS = FewShotFile(TEXT, "Be brief.", (FewShotExample("how many?", "two"),))


@given(st.text(), st.text())
def test_the_question_stands_in_its_place_unchanged(head: str, question: str) -> None:
    prompt = PromptTemplate(head, "\n\\boxed{} {question}\nAnswer:").prompt(question)
    assert prompt == head + "\n\\boxed{} " + question + "\nAnswer:"


def test_without_shots_the_prompt_is_the_template() -> None:
    assert (
        make_prompt_template(QA, None, "strict")
        == make_prompt_template(QA, None, "published")
        == PromptTemplate("", QA)
    )


def test_published_keeps_the_file_and_adds_a_blank_line() -> None:
    prompt = make_prompt_template(QA, SHOTS, "published").prompt("why?")
    assert prompt == TEXT + "\n\nQuestion: why?\nAnswer:"
    assert "two\n\n\nQuestion: why?" in prompt


def test_strict_lays_out_examples_as_the_question() -> None:
    assert make_prompt_template(QA, SHOTS, "strict").prompt("why?") == (
        "Be brief.\n\nQuestion: how many?\nAnswer: two\n\nQuestion: why?\nAnswer:"
    )


def test_an_answer_on_a_line_of_its_own_gets_no_space() -> None:
    prompt = make_prompt_template(STEPS, SHOTS, "strict").prompt("why?")
    assert prompt.startswith("Be brief.\n\nQuestion: how many?\nThink aloud\ntwo\n\nQuestion: why?")


def test_an_instruction_alone_and_examples_alone_leave_no_gap() -> None:
    alone = FewShotFile("Be brief.\n", "Be brief.", ())
    assert (
        make_prompt_template(QA, alone, "strict").prompt("x") == "Be brief.\n\nQuestion: x\nAnswer:"
    )
    bare = FewShotFile("", "", SHOTS.examples)
    assert make_prompt_template(QA, bare, "strict").prompt("x").startswith("Question: how many?")
