"""Strict exact match: the normalisation of the official SQuAD script, and its two variants."""

import re
import string
import unicodedata
from collections.abc import Callable, Sequence

Normaliser = Callable[[str], str]

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_DROP = str.maketrans("", "", string.punctuation)
# TriviaQA's script puts a space where punctuation was, and counts these quotes as punctuation.
_BLANK = str.maketrans(dict.fromkeys(string.punctuation + "\u2018\u2019\u00b4`", " "))


def squad(text: str) -> str:
    """Lower case; ASCII punctuation out; articles out; white space collapsed."""
    return _finish(text.lower().translate(_DROP))


def nq_open(text: str) -> str:
    """As `squad`, after Unicode NFD."""
    return squad(unicodedata.normalize("NFD", text))


def triviaqa(text: str) -> str:
    """As `squad`, but punctuation, `_` and typographic quotes become spaces."""
    return _finish(text.lower().translate(_BLANK))


def _finish(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text).split())


def first_line(text: str) -> str:
    """Return the prediction of a short answer: the first line of the generated text, stripped."""
    return text.split("\n", 1)[0].strip()


def exact_match(text: str, answers: Sequence[str], normalise: Normaliser) -> bool:
    """Tell whether a generated text equals one of the gold answers after normalisation.

    A prediction of which nothing is left is wrong, even where a gold answer normalises to nothing.
    """
    prediction = normalise(first_line(text))
    return bool(prediction) and any(prediction == normalise(answer) for answer in answers)
