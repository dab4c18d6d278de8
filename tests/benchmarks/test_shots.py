"""Files of few-shot examples."""

import gzip
import json
from pathlib import Path

import pytest

from adafuse.benchmarks.prompts import (
    FewShotExample,
    make_prompt_template,
    question_key,
    read_few_shot,
)
from adafuse.benchmarks.rows import read_rows
from adafuse.errors import UserError
from tests.conftest import SHARED

ROOT = Path(__file__).parents[2]
QA = "Question: {question}\nAnswer:"
STEPS = "Question: {question}\nLet's think step by step\n"
PLAIN = """Answer briefly.  \nNo more.

Question: how deep is the well
Answer: nine feet

Question: who dug it
Answer: Ada and
her brother
"""
OWN_LINES = """Copy the answer.

Examples:

Question:
The well is nine feet deep. How deep is it?
Answer:
nine feet

Question:
Ada dug it.
Who did?
Answer:
Ada
"""
CHAINS = """Question: 2 wells of 9 feet?
Let's think step by step
2 * 9 = 18 feet.

The answer is \\boxed{18}


Question: and 3?
Let's think step by step
3 * 9 = 27
The answer is \\boxed{27}
"""


THINKS = "Question: {question}\nThink.\nAnswer:"
GOOD = "Be good.\nQuestion: {question}\nAnswer:"


def write(folder: Path, text: str) -> Path:
    (folder / "shots.txt").write_bytes(text.encode())
    return folder / "shots.txt"


def test_instruction_and_examples_are_told_apart(tmp_path: Path) -> None:
    shots = read_few_shot(write(tmp_path, PLAIN), QA)
    assert shots.instruction == "Answer briefly.  \nNo more."
    assert shots.examples == (
        FewShotExample("how deep is the well", "nine feet"),
        FewShotExample("who dug it", "Ada and\nher brother"),
    )
    assert shots.text == PLAIN


def test_questions_and_answers_on_lines_of_their_own_are_read(tmp_path: Path) -> None:
    shots = read_few_shot(write(tmp_path, OWN_LINES), QA)
    assert shots.instruction == "Copy the answer.\n\nExamples:"
    assert shots.examples[1] == FewShotExample("Ada dug it.\nWho did?", "Ada")
    strict = make_prompt_template(QA, shots, "strict").prompt("x")
    assert "Question: Ada dug it.\nWho did?\nAnswer: Ada\n\nQuestion: x\nAnswer:" in strict
    published = make_prompt_template(QA, shots, "published").prompt("x")
    assert published == OWN_LINES + "\n\nQuestion: x\nAnswer:"


@pytest.mark.parametrize("template", [THINKS, GOOD])
def test_all_lines_of_the_prompt_are_told_from_questions_and_answers(
    tmp_path: Path, template: str
) -> None:
    examples = [FewShotExample("a?", "one"), FewShotExample("b?", "two")]
    text = "\n\n".join(f"{template.replace('{question}', e.question)} {e.answer}" for e in examples)
    shots = read_few_shot(write(tmp_path, f"Some questions.\n\n{text}\n"), template)
    assert (shots.instruction, [*shots.examples]) == ("Some questions.", examples)
    strict = make_prompt_template(template, shots, "strict").prompt("c?")
    assert strict == f"Some questions.\n\n{text}\n\n{template.replace('{question}', 'c?')}"


def test_lines_above_the_question_may_be_missing_in_all_examples(tmp_path: Path) -> None:
    shots = read_few_shot(write(tmp_path, "Question: a?\nAnswer: one\n"), GOOD)
    assert shots.examples == (FewShotExample("a?", "one"),)


def test_chains_of_thought_keep_their_lines(tmp_path: Path) -> None:
    shots = read_few_shot(write(tmp_path, CHAINS), STEPS)
    assert shots.instruction == ""
    assert shots.examples[0].answer == "2 * 9 = 18 feet.\n\nThe answer is \\boxed{18}"


@pytest.mark.parametrize("ending", ["", "\n", "\n\n"])
def test_fewer_shots_end_as_the_file_ends(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path, PLAIN.rstrip("\n") + ending)
    one = read_few_shot(path, QA, 1)
    assert one.text == PLAIN.split("\n\nQuestion: who")[0] + ending
    assert len(one.examples) == 1
    none = read_few_shot(path, QA, 0)
    assert none.text == "Answer briefly.  \nNo more." + ending
    assert none.examples == ()


def test_newlines_at_the_end_of_the_file_matter_to_published_alone(tmp_path: Path) -> None:
    prompts = {"strict": set(), "published": set()}
    for ending in ("", "\n", "\n\n"):
        shots = read_few_shot(write(tmp_path, PLAIN.rstrip("\n") + ending), QA)
        for layout, found in prompts.items():
            found.add(make_prompt_template(QA, shots, layout).prompt("x"))
    assert len(prompts["strict"]) == 1 and len(prompts["published"]) == 3


@pytest.mark.parametrize(
    ("text", "template", "count", "sentence"),
    [
        ("\n", QA, None, "is empty; write examples, or remove `shots`"),
        (PLAIN, QA, 3, "holds 2 examples, not 3; lower shots.count"),
        ("Question: a\nB: c\n", QA, None, "example 1 is not a question, then 'Answer:'"),
        ("Question:\nAnswer: c\n", QA, None, "example 1 is not a question"),
        ("Question: a\nAnswer:\n", QA, None, "example 1 is not a question"),
        ("Question: a\nThink.\nIt is b\n", THINKS, None, "then 'Think.\\nAnswer:' on a new"),
        ("Be good.\nQ: a\nA: b\n", QA, None, "has 'Q: a' before its first example; begin each"),
        (f"question: a\nAnswer: b\n\n{PLAIN}", QA, None, "has 'question: a' before its first"),
        (f"Q: a\nAnswer: b\n\n{PLAIN}", QA, None, "has 'Answer: b' before its first example"),
        (f"{PLAIN}\nQUESTION : b\nAnswer: c\n", QA, None, "has 'QUESTION :' within its answer"),
        ("Be good.\nQuestion: a\nAnswer: b\nQuestion: c\nAnswer: d", GOOD, None, "1 of 2 examples"),
        (PLAIN, "{question}\nAnswer:", None, "needs words before and after {question}"),
        (PLAIN, "Question: {question}", None, "needs words before and after {question}"),
    ],
)
def test_a_file_of_another_form_is_one_sentence(
    tmp_path: Path, text: str, template: str, count: int | None, sentence: str
) -> None:
    with pytest.raises(UserError) as error:
        read_few_shot(write(tmp_path, text), template, count)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_an_instruction_alone_may_have_labels_where_the_count_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, "Note: be brief.\n")
    with pytest.raises(UserError, match=r"or set shots\.count: 0"):
        read_few_shot(path, QA)
    assert read_few_shot(path, QA, 0).instruction == "Note: be brief."


def test_shots_that_are_no_text_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "shots.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="shots file"):
        read_few_shot(tmp_path / "shots.txt", QA)


def test_a_question_is_known_again_whatever_its_spaces_case_and_punctuation() -> None:
    assert question_key("A well.\nWho dug it") == question_key("a well.  Who dug it?")
    assert question_key("who dug it") != question_key("who dug in")
    for one, other in (
        ("3 + 4?", "3+4"), ("x-1", "x \u2013 1"),
        ("\u201cWho\u2019s there\u201d", "who's there?"), ("I'm", "I\u2019m"), ("'Hi'!", "hi"),
        ("a well-known man", "A well known man."), ("What is 3.5 ?", "what is 3.5"),
        ("Stra\u00dfe", "STRASSE\u200b"), ("5, or 6", "5 , or 6\u2026"),
    ):  # fmt: skip
        assert question_key(one) == question_key(other)


def test_questions_that_differ_in_a_symbol_are_not_the_same_example() -> None:
    for one, other in (
        ("3 + 4?", "3 - 4?"), ("3 * 4", "3 / 4"), ("3.5", "35"), ("1 2", "12"), ("x < y", "x > y"),
        ("5!", "5"), ("C#", "C"), ("5\u00b2", "52"), ("-5", "5"), ("1:30", "130"), ("20 %", "20"),
        ("(3 + 4) * 5", "3 + (4 * 5)"), ("x-y", "xy"), (".5", "5"), ("f'(2)", "f(2)"),
        ("n!", "n"), ("5'' tall", "5' tall"), ("5' tall", "5 tall"),
        ("\u0915\u0940", "\u0915\u093e"),
    ):  # fmt: skip
        assert question_key(one) != question_key(other)


REAL = (
    ("natural_questions", "nq_open_test3610.jsonl", "nq_prompt.txt", QA, 5, []),
    ("triviaqa", "triviaqa_wikipedia_test6000.jsonl", "triviaqa_prompt.txt", QA, 5,
     [1903, 1914, 1931, 1935, 1981]),
    ("squad", "squad_2500.jsonl", "squad_prompt.txt", QA, 5, [0, 6, 11, 92, 132]),
    ("gsm8k", "gsm8k_test1319_cleaned.jsonl", "gsm8k_prompt.txt", STEPS, 4, []),
    ("flores", "flores_eng2deu_qa.devtest.jsonl", "flores_en2deu_prompt.txt", QA, 0, []),
    ("flores", "flores_deu2eng_qa.devtest.jsonl", "flores_deu2en_prompt.txt", QA, 0, []),
)  # fmt: skip


@pytest.mark.parametrize(("folder", "rows", "shots", "template", "count", "found"), REAL)
def test_the_published_files_are_read_and_their_examples_found_among_the_rows(
    folder: str, rows: str, shots: str, template: str, count: int, found: list[int]
) -> None:
    place = SHARED / "benchmarks" / folder
    if not place.is_dir():
        pytest.skip(f"the real benchmarks are not at {place}")
    read = read_few_shot(place / shots, template)
    assert len(read.examples) == count
    keys = read.questions()
    questions = [row.question for row in read_rows(place / rows)]
    assert [n for n, each in enumerate(questions) if question_key(each) in keys] == found
    text = (place / shots).read_bytes().decode()
    prompt = make_prompt_template(template, read, "published").prompt("x")
    assert prompt == text + "\n\n" + template.replace("{question}", "x")
    gap = 3 if text.endswith("\n") else 2
    assert prompt.removesuffix(template.replace("{question}", "x")).endswith("\n" * gap)
    strict = make_prompt_template(template, read, "strict").prompt("x")
    assert "\n\n\nQuestion:" not in strict.removeprefix(read.instruction)
    assert strict.count("\n\nQuestion: ") + strict.startswith("Question: ") == count + 1


def test_our_own_examples_are_of_the_published_form_and_from_no_benchmark() -> None:
    folder = ROOT / "config/benchmarks/shots"
    counts = {}
    keys: set[str] = set()
    for path in sorted(folder.glob("*.txt")):
        shots = read_few_shot(path, STEPS if path.stem == "gsm8k" else QA)
        counts[path.stem] = len(shots.examples)
        keys |= shots.questions()
    assert counts == {
        "flores_de_en": 0, "flores_en_de": 0, "gsm8k": 4,
        "natural_questions": 5, "squad": 5, "triviaqa": 5,
    }  # fmt: skip
    for path in (SHARED / "benchmarks").glob("*/*.jsonl"):
        lines = path.read_bytes().split(b"\n")
        questions = {question_key(json.loads(line)["question"]) for line in lines if line}
        assert not keys & questions


@pytest.mark.parametrize("change", ["bom", "windows", "both", "joined", "gzip"])
def test_a_mark_or_line_ends_of_windows_change_no_prompt_and_hide_no_example(
    tmp_path: Path, change: str
) -> None:
    text = PLAIN.partition("\n\n")[2]  # begins with an example
    data = text.encode()
    if change == "joined":
        data = data.replace(b"Question: who", b"\xef\xbb\xbfQuestion: who")
    if change in ("windows", "both"):
        data = data.replace(b"\n", b"\r\n")
    if change in ("bom", "both"):
        data = b"\xef\xbb\xbf" + data
    (tmp_path / "plain").write_text(text)
    (tmp_path / "other").write_bytes(gzip.compress(data) if change == "gzip" else data)
    plain, other = (read_few_shot(tmp_path / name, QA) for name in ("plain", "other"))
    assert other == plain and len(plain.examples) == 2
    assert question_key("How deep is the well?") in other.questions()


def test_the_same_question_in_another_normal_form_is_the_same_example() -> None:
    assert question_key("Wer war Andr\u00e9?") == question_key("wer war Andre\u0301")
    assert question_key("\u2753") != question_key("\u2754")
