"""The scorer `myscorer`: a text is right if it contains an accepted answer."""

from collections.abc import Sequence

from adafuse.metrics.registry import register_scorer
from adafuse.metrics.scorer import Judgement, Metric, Prediction, Scorer, judge, share_right


def contains(example: Prediction) -> bool:
    """Say whether the text of an example contains an accepted answer, whatever the case."""
    return any(answer.casefold() in example.text.casefold() for answer in example.answers)


def contained(examples: Sequence[Prediction]) -> Judgement:
    """Return the outcome of each example, and the share of right ones."""
    outcomes = judge(examples, contains)
    return Judgement(outcomes, {"contained": share_right(outcomes)})


register_scorer(
    Scorer(
        name="myscorer",
        doc="share of texts that contain an accepted answer",
        metrics=(Metric("contained", "answer contained", binary=True),),
        strict=contained,
    )
)
