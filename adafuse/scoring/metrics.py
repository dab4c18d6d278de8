"""All metrics by name; a new one is a function and a line here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from adafuse.errors import UserError, known
from adafuse.scoring.exact_match import Normaliser, exact_match, nq_open, squad, triviaqa
from adafuse.scoring.intervals import wilson


@dataclass(frozen=True, slots=True)
class Example:
    """What a metric sees of a row: the generated text, "" where there is none, and the answers."""

    id: str
    text: str
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A score in percent with both ends of its 95 % interval."""

    value: float
    low: float
    high: float


Metric = Callable[[Sequence[Example]], Estimate]


def metric_named(name: str, owner: str) -> Metric:
    """Return a metric.

    Raises:
        UserError: there is none of that name.
    """
    if name not in METRICS:
        raise UserError(f"{owner}: {known('metric', name, list(METRICS))}")
    return METRICS[name]


def _accuracy(examples: Sequence[Example], right: Callable[[Example], bool]) -> Estimate:
    count, total = sum(map(right, examples)), len(examples)
    low, high = wilson(count, total)
    return Estimate(100 * count / total, 100 * low, 100 * high)


def _exact_match(examples: Sequence[Example], normalise: Normaliser) -> Estimate:
    return _accuracy(examples, lambda each: exact_match(each.text, each.answers, normalise))


def _number(examples: Sequence[Example]) -> Estimate:
    from adafuse.scoring.numbers import final_number, same_number

    for example in examples:
        for answer in example.answers:
            if final_number(answer) is None:
                raise UserError(
                    f"the gold answer {answer!r} of row {example.id!r} has no number; correct it or"
                    " use another metric"
                )
    return _accuracy(examples, lambda each: any(same_number(each.text, a) for a in each.answers))


def _bleu(examples: Sequence[Example]) -> Estimate:
    from adafuse.scoring.bleu import corpus_bleu

    texts = [example.text.strip() for example in examples]
    return Estimate(*corpus_bleu(texts, [example.answers for example in examples]))


METRICS: dict[str, Metric] = {
    "exact_match": partial(_exact_match, normalise=squad),
    "exact_match_nq": partial(_exact_match, normalise=nq_open),
    "exact_match_triviaqa": partial(_exact_match, normalise=triviaqa),
    "accuracy": _number,
    "bleu": _bleu,
}
