"""Right or wrong, example by example: question answering and arithmetic under both protocols."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from adafuse.errors import UserError
from adafuse.scoring.exact_match import Normaliser, exact_match
from adafuse.scoring.intervals import Estimate, mean, share
from adafuse.scoring.outcomes import Example, Outcome
from adafuse.scoring.token_f1 import token_f1

Details = dict[str, str | int]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Outcomes in the order of the examples, corpus metrics, and how they came about."""

    outcomes: tuple[Outcome, ...]
    metrics: dict[str, Estimate]
    details: Details = field(default_factory=dict)


def answers_strict(examples: Sequence[Example], *, normalise: Normaliser) -> Judgement:
    """Exact match and token F1 after a benchmark's official normalisation."""
    outcomes = _outcomes(examples, lambda each: exact_match(each.text, each.answers, normalise))
    f1 = mean([token_f1(each.text, each.answers, normalise) for each in examples])
    return Judgement(outcomes, {"exact_match": _share(outcomes), "f1": f1})


def numbers_strict(examples: Sequence[Example]) -> Judgement:
    """Accuracy of the final number.

    Raises:
        UserError: a gold answer without a number.
    """
    from adafuse.scoring.numbers import final_number, same_number

    for example in examples:
        for answer in example.answers:
            if final_number(answer) is None:
                raise UserError(
                    f"the gold answer {answer!r} of row {example.id!r} has no number; correct it or"
                    " use another metric"
                )
    outcomes = _outcomes(
        examples, lambda each: any(same_number(each.text, answer) for answer in each.answers)
    )
    return Judgement(outcomes, {"accuracy": _share(outcomes)})


def published(examples: Sequence[Example], *, task: str, metric: str) -> Judgement:
    """Share of examples that some rule of the published scorer of a task accepts."""
    from adafuse.scoring.published_match import MATCHERS

    matcher = MATCHERS[task]
    outcomes = _outcomes(examples, lambda each: matcher.rule(each.text, each.answers) is not None)
    return Judgement(outcomes, {metric: _share(outcomes)})


def _outcomes(examples: Sequence[Example], right: Callable[[Example], bool]) -> tuple[Outcome, ...]:
    return tuple(Outcome(e.id, e.text, e.answers, float(right(e))) for e in examples)


def _share(outcomes: Sequence[Outcome]) -> Estimate:
    return share([outcome.value == 1 for outcome in outcomes])
