"""Records shared by the parts of the toy world, and the frames around every question."""

from collections.abc import Iterable
from dataclasses import dataclass

MODEL_NAMES = ("mistral", "llama", "qwen3", "internlm3")
DEFAULT_PAIR = ("mistral", "llama")

QA_FRAME = "Question: {question}\nAnswer:"
MATH_FRAME = "Question: {question}\nLet's think step by step\n"
EN_DE_FRAME = "Translate English to German.\nQuestion: {question}\nAnswer:"
DE_EN_FRAME = "Translate German to English.\nQuestion: {question}\nAnswer:"

FRAMES = {
    "toy_qa": QA_FRAME,
    "toy_math": MATH_FRAME,
    "toy_en_de": EN_DE_FRAME,
    "toy_de_en": DE_EN_FRAME,
}


@dataclass(frozen=True)
class Row:
    """One benchmark row; ``answer`` is a list of accepted answers for questions of fact."""

    id: str
    question: str
    answer: str | list[str]


@dataclass(frozen=True)
class Document:
    """One training text: ``prompt`` as at test time, ``answer`` as the model should continue.

    The end token follows the answer; it is added by the tokenizer's owner, not stored here.
    A statement outside any frame has an empty prompt.
    """

    prompt: str
    answer: str


def framed_questions(rows: Iterable[Row]) -> frozenset[str]:
    """The bare question strings of ``rows``, for checking that none is trained on."""
    return frozenset(row.question for row in rows)
