"""The published rules that accept a prediction; the name of a rule is what the audit counts.

A prediction without any text is wrong under every rule. (The scripts accept it for the few gold
answers that normalise to nothing; ours do not, so that an empty run scores 0.)
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from adafuse.scoring import published_text as texts

Accepts = Callable[[str, str], bool]
Rules = dict[str, Accepts]

_BOX = re.compile(r"\\boxed\{([^}]+)\}")
_LABEL = re.compile(r"[Tt]he answer is\s+(.*)")
_NOT_NUMERIC = re.compile(r"[^\d.]")
_LETTERS = re.compile(r"[a-zA-Z]+")


def equal(prediction: str, gold: str) -> bool:
    """Both normalised texts are the same."""
    return prediction == gold


def same_number(prediction: str, gold: str) -> bool:
    """Both normalised texts read as the same number, other words passed over."""
    number = texts.spoken(prediction)
    return number is not None and number == texts.spoken(gold)


def same_number_if_any(prediction: str, gold: str) -> bool:
    """As `same_number`, but only texts of digits or with a number word are read (TriviaQA)."""
    return _has_number(prediction) and _has_number(gold) and same_number(prediction, gold)


def _has_number(text: str) -> bool:
    return text.isdecimal() or any(word in texts.NUMBER_WORDS for word in _LETTERS.findall(text))


def contained(prediction: str, gold: str, *, slack: int) -> bool:
    """Every word of the shorter text occurs in the longer one, in any order.

    Args:
        prediction: normalised.
        gold: normalised.
        slack: how many words longer the longer one may be once the shorter has three or more.
    """
    short, long = sorted((prediction.split(), gold.split()), key=len)
    if not short or (len(short) >= 3 and len(long) - len(short) > slack):
        return False
    return set(short) <= set(long)


def substring(prediction: str, gold: str) -> bool:
    """One of the two strings contains the other ("8" and "18.00")."""
    return bool(prediction and gold) and (prediction in gold or gold in prediction)


def boxed(text: str) -> str:
    r"""Return what stands in the first \boxed{...}; the whole text where there is none."""
    box = _BOX.search(text)
    return box[1] if box else text


def labelled(gold: str) -> str:
    """Return what follows the first "the answer is" on its line; else the whole text."""
    label = _LABEL.search(gold)
    return label[1] if label else gold


def digits(text: str) -> str:
    """Drop all but digits and dots, then write with two decimals what is a number."""
    kept = _NOT_NUMERIC.sub("", text)
    try:
        return f"{round(float(kept), 2):.2f}"
    except ValueError:
        return kept


def _equal_digits(prediction: str, gold: str) -> bool:
    return bool(gold) and prediction == gold


@dataclass(frozen=True, slots=True)
class Matcher:
    """Rewrites predictions and gold answers, then asks one rule after the other."""

    rules: Rules
    prediction: Callable[[str], str]
    gold: Callable[[str], str]

    def rule(self, text: str, answers: Sequence[str]) -> str | None:
        """Return the first rule by which some gold answer accepts the text; None: it is wrong."""
        if not text.strip():
            return None
        prediction, golds = self.prediction(text), [self.gold(answer) for answer in answers]
        for name, accepts in self.rules.items():
            if any(accepts(prediction, gold) for gold in golds):
                return name
        return None


def _lenient(normalise: Callable[[str], str], number: Accepts, slack: int) -> Matcher:
    rules: Rules = {
        "equal": equal,
        "number": number,
        "containment": partial(contained, slack=slack),
    }
    return Matcher(rules, normalise, normalise)


MATCHERS: dict[str, Matcher] = {
    "nq": _lenient(texts.natural_questions, same_number, slack=1),
    "squad": _lenient(texts.squad, same_number, slack=5),
    "triviaqa": _lenient(texts.triviaqa, same_number_if_any, slack=1),
    "gsm8k": Matcher(
        {"equal": _equal_digits, "substring": substring},
        lambda text: digits(boxed(text)),
        lambda gold: digits(labelled(gold)),
    ),
}
