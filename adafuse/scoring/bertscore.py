"""BERTScore F1, an optional extra: it needs the package bert-score and a model from the hub."""

from collections.abc import Sequence

from adafuse.errors import UserError
from adafuse.scoring.intervals import Estimate, mean
from adafuse.scoring.outcomes import Outcome


def bertscore_f1(outcomes: Sequence[Outcome], language: str) -> Estimate:
    """Return the mean BERTScore F1 in percent, best over the gold answers; an empty text has 0.

    Args:
        outcomes: the scored texts with their answers.
        language: of the answers, such as "en" or "de"; it chooses the model.

    Raises:
        UserError: bert-score is not installed.
    """
    try:
        from bert_score import score
    except ImportError:
        raise UserError(
            "BERTScore needs the package bert-score; run pip install 'adafuse[bertscore]'"
        ) from None
    filled = [outcome for outcome in outcomes if outcome.text.strip()]
    texts, answers = [o.text for o in filled], [list(o.answers) for o in filled]
    values = iter(score(texts, answers, lang=language)[2].tolist() if filled else [])
    return mean([next(values) if outcome.text.strip() else 0.0 for outcome in outcomes])
