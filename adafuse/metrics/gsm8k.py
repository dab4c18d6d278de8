"""Strict accuracy of arithmetic: the final number of a text, compared exactly."""

import re
from decimal import Context, Decimal

from adafuse.metrics.numbers import Number, numbers, plain, unread
from adafuse.metrics.scorer import Metric, Prediction, Scorer, accuracy, published

_BOX = re.compile(r"\\f?boxed\s*\{")
_IN_BOX = re.compile(r"^\s*(-?)\s*(\d+)(?:st|nd|rd|th)?\s*$")
_ANSWER = re.compile(r"\banswer is\b", re.IGNORECASE)
_LEADING = re.compile(
    r"\W*(?:(?:only|just|exactly|about|approximately|roughly|around|a total of|x) ?[:=*]*\W*)?",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    r"[.;!?](?=\s|$)|\n|,\s|\s\((?=[^()]*=[^()]*\))"
    r"|\b(?:because|since|as|when|where|if|so|given|(?:for|with) [a-z](?= *=))\b",
    re.IGNORECASE,
)
_MARKED = re.compile(r"^#### *([^\sA-Za-z]*\d\S*)\s*$", re.MULTILINE)
_OPERATOR = re.compile(
    r"[%)]?\s*[xyzn]?\s*"
    r"(?:[-+/^]|\*(?!\*)|x(?=\s)|(?:times|plus|minus|divided by|multiplied by)\s)"
    r"\s*[$(]?\s*(?:\d|\.\d|[xyzn]\b|root\b)"
)
_NOT = re.compile(r"(?:\bnot|n't)(?: equal to)?\s+$", re.IGNORECASE)
_NEAR = 40  # characters
_PRONOUN_BEFORE = re.compile(
    r"\b(?:no|any|every|each|some|another|other|same|if|(?:this|that|which|the|a)(?: \w+)?)\W*$",
    re.IGNORECASE,
)
_PRONOUN_AFTER = re.compile(
    r"'s\b|\W+(?:another|must|can|could|should|would|may|might|will|does|day|by one|knows?|thinks?"
    r"|needs?|who|which)\b",
    re.IGNORECASE,
)


def final_number(text: str) -> Decimal | None:
    """Return the number in the last \\boxed{}, or after the last "answer is", or the last number.

    A line "#### 18", as the answers of GSM8K end, counts unless an "answer is" follows it.
    Number words at the end of a text are read where it has no digits. A fraction that is no decimal
    is rounded to so many digits that none is taken for another.
    """
    *_, boxed = _BOX.split(text)
    if boxed is not text and _BOX.search(text):
        return _decimal(_first(_IN_BOX.sub(r"\1\2", plain(_until_brace(boxed)))))
    *before, end = _ANSWER.split(plain(text))
    if marked := _MARKED.findall(end):
        return _decimal(_first(marked[-1]))
    if before:
        return _decimal(_first(end))
    mentions = _mentions(end)
    mentions = [number for number in mentions if number.digits] or mentions
    return _decimal(mentions[-1] if mentions else None)


def _until_brace(rest: str) -> str:
    """Return what stands before the brace that closes the box."""
    depth = 1
    for end, character in enumerate(rest):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return rest[:end]
    return rest


def _mentions(text: str) -> list[Number]:
    """Return the numbers of a text: denied ones if it has no others, never "one" as a pronoun."""
    mentions = [number for number in numbers(text) if not _is_pronoun(text, number)]
    return [number for number in mentions if not _NOT.search(_before(text, number))] or mentions


def _before(text: str, number: Number) -> str:
    return text[max(0, number.start - _NEAR) : number.start]


def _is_pronoun(text: str, number: Number) -> bool:
    if text[number.start : number.end].lower() != "one":
        return False
    before, after = _PRONOUN_BEFORE.search(_before(text, number)), _PRONOUN_AFTER
    return bool(before or after.match(text, number.end))


def _first(text: str) -> Number | None:
    """Return the number that a text begins with, else its first; of an equation the right side."""
    mentions = _mentions(text)
    if not mentions:
        return None
    first = next((number for number in mentions if number.digits), mentions[0])
    if _LEADING.fullmatch(text, 0, mentions[0].start):
        first = mentions[0]
    boundary = _CLAUSE.search(text, first.end)
    end = boundary.start() if boundary else len(text)
    if (sign := text.rfind("=", first.end, end)) > 0:
        right = next((number for number in mentions if sign < number.start < end), None)
        if right and not _OPERATOR.match(text, right.end):
            return right
    return None if _OPERATOR.match(text, first.end) else first


def _decimal(number: Number | None) -> Decimal | None:
    if number is None:
        return None
    above, below = Decimal(number.value.numerator), Decimal(number.value.denominator)
    if below == 1:
        return above
    # Enough for every fraction that ends, and more than two others can have in common.
    exact = len(above.as_tuple().digits) + 4 * len(below.as_tuple().digits)
    return Context(prec=60 + exact).divide(above, below)


def _right(example: Prediction) -> bool:
    return final_number(example.text) in map(final_number, example.answers)


def _answer(text: str) -> str:
    number = final_number(text)
    return "" if number is None else str(number)


_WORD = re.compile(r"(?!root\b)\b[^\W\d_]{2,}")
_EXPRESSION = re.compile(r"\broot\b|[(\[][^()\[\]]*,[^()\[\]]*[)\]]|\d[inxyz]\b")


def _unreadable(answer: str) -> str | None:
    """Refuse an answer without a number, and an expression that is not just one."""
    if final_number(answer) is None:
        return "has no number"
    if "\n" in answer.strip() or _BOX.search(answer):
        return None
    right, odd = plain(answer).rpartition("=")[2], unread(answer)
    if _WORD.search(right) and r"\begin" not in odd:
        return None
    several = len({number.value for number in numbers(right)}) > 1
    return "is more than a number" if odd or several or _EXPRESSION.search(right) else None


GSM8K = Scorer(
    "gsm8k",
    "accuracy of the final number of an answer",
    (Metric("accuracy", "accuracy", binary=True),),
    strict=accuracy("accuracy", _right),
    published=published("gsm8k", "accuracy"),
    unreadable=_unreadable,
    answer=_answer,
)
