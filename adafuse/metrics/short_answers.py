"""Short answers: exact match and token F1 as the official scripts of the benchmarks normalise."""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from adafuse.metrics.intervals import mean
from adafuse.metrics.scorer import (
    Judgement,
    Metric,
    Prediction,
    Scorer,
    judge,
    published,
    share_right,
    shown_lines,
    trimmed,
)

Normaliser = Callable[[str], str]

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_DROP = str.maketrans("", "", string.punctuation)
# TriviaQA's script puts a space where punctuation was, and counts these quotes as punctuation.
_BLANK = str.maketrans(dict.fromkeys(string.punctuation + "\u2018\u2019\u00b4`", " "))


def squad(text: str) -> str:
    """Lower case; ASCII punctuation out; articles out; white space collapsed."""
    return _without_articles(text.lower().translate(_DROP))


def nq_open(text: str) -> str:
    """As `squad`, after Unicode NFD."""
    return squad(unicodedata.normalize("NFD", text))


def triviaqa(text: str) -> str:
    """As `squad`, but punctuation, `_` and typographic quotes become spaces."""
    return _without_articles(text.lower().translate(_BLANK))


def _without_articles(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", trimmed(text)).split())


def first_line(text: str) -> str:
    """Return the prediction in a generated text: its first line that is not blank."""
    return next(iter(shown_lines(text)), "")


def exact_match(text: str, answers: Sequence[str], normalise: Normaliser) -> bool:
    """Say whether a generated text equals one of the gold answers after normalisation."""
    prediction = normalise(first_line(text))
    # One of which nothing is left is wrong, even where a gold answer normalises to nothing.
    return bool(prediction) and any(prediction == normalise(answer) for answer in answers)


def token_f1(text: str, answers: Sequence[str], normalise: Normaliser) -> float:
    """Return the best F1 of a generated text over the gold answers, 0 to 1.

    Tokens are those of the normalised texts, counted with repetition (Rajpurkar et al., 2016).
    """
    prediction = Counter(normalise(first_line(text)).split())
    return max(_overlap(prediction, Counter(normalise(answer).split())) for answer in answers)


def _overlap(prediction: Counter[str], gold: Counter[str]) -> float:
    common = (prediction & gold).total()
    return 2 * common / (prediction.total() + gold.total()) if common else 0.0


def _scorer(name: str, doc: str, normalise: Normaliser) -> Scorer:
    def strict(examples: Sequence[Prediction]) -> Judgement:
        answers = [replace(example, text=first_line(example.text)) for example in examples]
        outcomes = judge(answers, lambda e: exact_match(e.text, e.answers, normalise))
        f1 = mean([token_f1(e.text, e.answers, normalise) for e in examples])
        return Judgement(outcomes, {"exact_match": share_right(outcomes), "f1": f1})

    def compared(answer: str) -> str:
        """Return an accepted answer normalised; nothing of one that no first line can equal."""
        whole = normalise(answer)
        return whole if normalise(first_line(answer)) == whole else ""

    metrics = (Metric("exact_match", "exact match", binary=True), Metric("f1", "token F1"))
    rules = strict, published(name, "exact_match")
    return Scorer(
        name,
        doc,
        metrics,
        *rules,
        normalise=compared,
        answer=lambda text: normalise(first_line(text)),
    )


SCORERS = (
    _scorer("nq", "exact match and token F1 after Unicode NFD and SQuAD's normalisation", nq_open),
    _scorer("squad", "exact match and token F1 of the official SQuAD script", squad),
    _scorer("triviaqa", "exact match and token F1 of the official TriviaQA script", triviaqa),
)
