"""How the published question-answering scorers rewrite a text, one function per rule.

Rules of the scripts behind Table 1 of arXiv 2601.06022, in their order; scoring.md's counts on the
real files pin down what the words leave open (tests/scoring/test_published_calibration.py).
"""

import re
import string
import unicodedata

from word2number import w2n

FUNCTION_WORDS = (
    "a|an|the|and|or|in|on|of|for|to|with|at|by|from|about|as|is|was|were|be|been|are|has|have|had"
    "|do|does|did|but|so|if|then|than|that|which|who|whom|whose|because|while|where|when|how|what"
    "|why|can|will|would|should|could|shall|may|might|must"
)
NUMBER_WORDS = frozenset({*w2n.american_number_system, "trillion"} - {"point"})
RUN = 4  # most number words that are read as one number

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_FUNCTION = re.compile(rf"\b(?:{FUNCTION_WORDS})\b")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_POSSESSIVE = re.compile(r"(?<=\w)'s\b")
_NUMBER = "|".join(sorted(NUMBER_WORDS))
# A run takes the space, hyphen or "and" behind its last word with it: "one direction" becomes
# "1direction". Without that the first word of NQ's gold answers would score 89.8 %, not 89.5 %.
_NUMBER_RUN = re.compile(rf"\b(?:(?:{_NUMBER})(?:\s+and)?(?:\s+|-)?){{1,{RUN}}}\b", re.IGNORECASE)


def natural_questions(text: str) -> str:
    """NFD; number words; lower case; punctuation, function words and plural s out."""
    text = without_punctuation(number_words(unicodedata.normalize("NFD", text)).lower())
    return without_plurals(without_function_words(text))


def squad(text: str) -> str:
    """As `natural_questions`, but possessives go before punctuation and plurals stay."""
    text = without_possessives(number_words(unicodedata.normalize("NFD", text)))
    return without_function_words(without_punctuation(text.lower()))


def triviaqa(text: str) -> str:
    """NFD; lower case; punctuation and articles out."""
    text = without_punctuation(unicodedata.normalize("NFD", text).lower())
    return _spaced(_ARTICLES.sub(" ", text))


def number_words(text: str) -> str:
    """Write runs of up to four number words as digits; what word2number cannot read stays."""
    return _NUMBER_RUN.sub(lambda run: _digits(run[0]), text)


def _digits(words: str) -> str:
    number = spoken(words.replace("-", " ").replace(" and ", " "))
    return words if number is None else str(number)


def spoken(text: str) -> float | None:
    """Return what word2number makes of a text; digits as they are, other words passed over."""
    try:
        number: float = w2n.word_to_num(text)
    except (ValueError, IndexError):  # the latter from "thousand million" and the like
        return None
    return number


def without_punctuation(text: str) -> str:
    """Take out ASCII punctuation, without a space in its place."""
    return text.translate(_PUNCTUATION)


def without_function_words(text: str) -> str:
    """Take out `FUNCTION_WORDS` and surplus white space."""
    return _spaced(_FUNCTION.sub(" ", text))


def without_possessives(text: str) -> str:
    """Cut 's from words."""
    return _POSSESSIVE.sub("", text)


def without_plurals(text: str) -> str:
    """Cut a final s from words of four or more letters that do not end in ss."""
    return " ".join(map(_singular, text.split()))


def _singular(word: str) -> str:
    return word[:-1] if len(word) >= 4 and word.endswith("s") and word[-2] != "s" else word


def _spaced(text: str) -> str:
    return " ".join(text.split())
