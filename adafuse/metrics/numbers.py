"""Strict accuracy of arithmetic: the final number of a text, compared exactly."""

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import cache

from adafuse.errors import UserError
from adafuse.metrics.scorer import Example, Judgement, Metric, Scorer, judge, published, share_right

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
    """Return the number that a text ends up with; None if there is none.

    That is the number in the last \\boxed{}; without a box, the first one after the last "answer
    is"; without either, the last number of the text. Number words are read where that part of
    the text has no digits.
    """
    text = text.translate(_MINUS)
    box = text.rfind(_BOX)
    if box >= 0:
        return _first(_boxed(text[box + len(_BOX) :]))
    phrases = list(_ANSWER.finditer(text))
    if phrases:
        return _first(text[phrases[-1].end() :])
    numbers = _numbers(text)
    return numbers[-1] if numbers else None


def same_number(text: str, gold: str) -> bool:
    """Say whether two texts end up with the same number; a text without one is wrong."""
    number = final_number(text)
    return number is not None and number == final_number(gold)


def _boxed(rest: str) -> str:
    """Return what stands before the brace that closes the box."""
    depth = 1
    for place, character in enumerate(rest):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return rest[:place]
    return rest


def _first(text: str) -> Decimal | None:
    numbers = _numbers(text)
    return numbers[0] if numbers else None


def _numbers(text: str) -> list[Decimal]:
    found = [_decimal(match) for match in _NUMBER.finditer(text.replace("{,}", ","))]
    return found or [n for match in _words().finditer(text) if (n := _spoken(match[0])) is not None]


@cache
def _words() -> re.Pattern[str]:
    from word2number import w2n

    names = sorted(w2n.american_number_system.keys() - {"point"}, key=len, reverse=True)
    word = "|".join(names)
    return re.compile(
        rf"\b(?:(?:minus|negative)\s+)?(?:{word})(?:[\s-]+(?:and\s+)?(?:{word}))*\b", re.IGNORECASE
    )


def _decimal(match: re.Match[str]) -> Decimal:
    value = Decimal(match["digits"].replace(",", ""))
    return -value if match["sign"] else value


def _spoken(words: str) -> Decimal | None:
    from word2number import w2n

    number = _SIGN.sub("", words.lower())
    if number.startswith(_SCALES):
        number = f"one {number}"  # word2number takes "hundred and five" for 500
    try:
        value = Decimal(str(w2n.word_to_num(number)))
    except ValueError:
        return None
    return -value if _SIGN.match(words.lower()) else value


def _strict(examples: Sequence[Example]) -> Judgement:
    for example in examples:
        for answer in example.answers:
            if final_number(answer) is None:
                raise UserError(
                    f"the gold answer {answer!r} of row {example.id!r} has no number; correct it or"
                    " use another scorer"
                )
    outcomes = judge(
        examples, lambda each: any(same_number(each.text, answer) for answer in each.answers)
    )
    return Judgement(outcomes, {"accuracy": share_right(outcomes)})


GSM8K = Scorer(
    "gsm8k",
    "accuracy of the final number of an answer",
    (Metric("accuracy", "accuracy", binary=True),),
    _strict,
    published("gsm8k", "accuracy"),
)
