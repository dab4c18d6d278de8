"""Token F1 of the official SQuAD script, as a share."""

from collections import Counter
from collections.abc import Sequence

from adafuse.scoring.exact_match import Normaliser, first_line


def token_f1(text: str, answers: Sequence[str], normalise: Normaliser) -> float:
    """Return the best F1 of a generated text over the gold answers, 0 to 1.

    Tokens are those of the normalised texts, counted with repetition (Rajpurkar et al., 2016). A
    prediction of which nothing is left has none.
    """
    prediction = Counter(normalise(first_line(text)).split())
    return max(_overlap(prediction, Counter(normalise(answer).split())) for answer in answers)


def _overlap(prediction: Counter[str], gold: Counter[str]) -> float:
    common = (prediction & gold).total()
    return 2 * common / (prediction.total() + gold.total()) if common else 0.0
