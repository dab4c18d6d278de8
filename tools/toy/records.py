"""Records shared by the parts of the toy world, the prompt templates, and who knows what."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MODEL_NAMES = ("mistral", "llama", "qwen3", "internlm3")
DEFAULT_PAIR = ("mistral", "llama")

QA_PROMPT = "Question: {question}\nAnswer:"
MATH_PROMPT = "Question: {question}\nLet's think step by step\n"
EN_DE_PROMPT = "Translate English to German.\nQuestion: {question}\nAnswer:"
DE_EN_PROMPT = "Translate German to English.\nQuestion: {question}\nAnswer:"

PROMPTS = {
    "toy_qa": QA_PROMPT,
    "toy_math": MATH_PROMPT,
    "toy_en_de": EN_DE_PROMPT,
    "toy_de_en": DE_EN_PROMPT,
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
    A statement outside any prompt template has an empty prompt.
    """

    prompt: str
    answer: str


def questions(rows: Iterable[Row]) -> frozenset[str]:
    """The bare question strings of ``rows``, for checking that none is trained on."""
    return frozenset(row.question for row in rows)


HIDDEN = 0.08
"""The share that neither model of the default pair knows."""


def split(keys: Sequence[str], share: float, rng: random.Random) -> dict[str, frozenset[str]]:
    """The keys known to each model, ``share`` of them each.

    The default pair takes the two ends of one shuffled list, whose rest neither has heard of, so
    that fusing them leaves something to be desired; every other model draws its part at random.
    """
    count = round(share * len(keys))
    ends = rng.sample(list(keys), len(keys))[: round((1 - HIDDEN) * len(keys))]
    first, second = DEFAULT_PAIR
    known = {first: frozenset(ends[:count]), second: frozenset(ends[-count:])}
    for name in MODEL_NAMES:
        known.setdefault(name, frozenset(rng.sample(list(keys), count)))
    return known


def split_groups(
    groups: Sequence[Sequence[str]], share: float, rng: random.Random
) -> dict[str, frozenset[str]]:
    """Like ``split``, with ``share`` kept in each group (word classes, kinds of facts)."""
    parts = [split(group, share, rng) for group in groups]
    return {name: frozenset().union(*(part[name] for part in parts)) for name in MODEL_NAMES}
