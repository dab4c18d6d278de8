"""Strict accuracy of arithmetic: the final number of a text, compared exactly."""

import re
from decimal import Decimal
from functools import cache

from adafuse.metrics.scorer import Example, Metric, Scorer, accuracy, published

_BOX = "\\boxed{"
_ANSWER = re.compile(r"answer is", re.IGNORECASE)
_MINUS = str.maketrans("\u2212\u2013", "--")
_NUMBER = re.compile(
    # A minus is a sign unless it stands between two numbers or words, as in 10-3.
    r"(?P<sign>(?<![\w.)])-)?[$€£¥\\]*"
    r"(?P<digits>\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|(?<![\d.])\.\d+)",
    re.ASCII,
)
_SIGN = re.compile(r"^(?:minus|negative)\s+")
_SCALES = ("hundred", "thousand", "million", "billion")


def final_number(text: str) -> Decimal | None:
    """Return the number in the last \\boxed{}, or after the last "answer is", or the last number.

    Number words are read where that part of the text has no digits.
    """
    text = text.translate(_MINUS)
    _, box, boxed = text.rpartition(_BOX)
    if box:
        return next(iter(_numbers(_until_brace(boxed))), None)
    *before, end = _ANSWER.split(text)
    numbers = _numbers(end)
    if before:
        return next(iter(numbers), None)
    return numbers[-1] if numbers else None


def _until_brace(rest: str) -> str:
    """Return what stands before the brace that closes the box."""
    depth = 1
    for end, character in enumerate(rest):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return rest[:end]
    return rest


def _numbers(text: str) -> list[Decimal]:
    matches = list(_NUMBER.finditer(text.replace("{,}", ",")))
    if matches:
        return [Decimal((m["sign"] or "") + m["digits"].replace(",", "")) for m in matches]
    return [value for words in _words().findall(text) if (value := _spoken(words)) is not None]


@cache
def _words() -> re.Pattern[str]:
    from word2number import w2n

    names = sorted(w2n.american_number_system.keys() - {"point"}, key=len, reverse=True)
    word = "|".join(names)
    return re.compile(
        rf"\b(?:(?:minus|negative)\s+)?(?:{word})(?:[\s-]+(?:and\s+)?(?:{word}))*\b", re.IGNORECASE
    )


def _spoken(words: str) -> Decimal | None:
    from word2number import w2n

    number = _SIGN.sub("", words.lower())
    if number.startswith(_SCALES):
        number = f"one {number}"  # word2number takes "hundred and five" for 500
    try:
        value = Decimal(str(w2n.word_to_num(number)))
    except (ValueError, IndexError):  # the latter from "thousand million" and the like
        return None
    return -value if _SIGN.match(words.lower()) else value


def _right(example: Example) -> bool:
    return final_number(example.text) in map(final_number, example.answers)


def _unreadable(answer: str) -> str | None:
    return "has no number" if final_number(answer) is None else None


GSM8K = Scorer(
    "gsm8k",
    "accuracy of the final number of an answer",
    (Metric("accuracy", "accuracy", binary=True),),
    strict=accuracy("accuracy", _right),
    published=published("gsm8k", "accuracy"),
    unreadable=_unreadable,
)
