"""What a scorer is: how the texts of a benchmark are scored, and what it reports."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from adafuse.metrics.intervals import Estimate, share

STRICT, PUBLISHED = "strict", "published"
PROTOCOLS = (STRICT, PUBLISHED)

Details = dict[str, str | int]


@dataclass(frozen=True, slots=True)
class Example:
    """What a scorer sees of a row: the accepted answers and the text, "" where there is none."""

    id: str
    text: str
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A scored example.

    `value` is 1.0 or 0.0 for a binary metric, else in the unit of the metric (for translations the
    sentence's BLEU, 0 to 100, effective order). `text` and `answers` of a translation are stripped
    and NFC.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """Outcomes in the order of the examples, corpus metrics by name, signatures and counts."""

    outcomes: tuple[Outcome, ...]
    metrics: dict[str, Estimate]
    details: Details = field(default_factory=dict)


Protocol = Callable[[Sequence[Example]], Judgement]


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that a scorer reports: its name in files, and how pages and figures write it.

    A `binary` metric is the share of examples that are right (1), not wrong (0). `tokenize` is
    sacrebleu's name of a tokenizer where the metric is a corpus BLEU. Any other metric is the mean
    of the examples' values.
    """

    name: str
    label: str
    binary: bool = False
    higher_is_better: bool = True
    tokenize: str | None = None


@dataclass(frozen=True, slots=True)
class Scorer:
    """What `scorer` of a benchmark names.

    `doc` is one line for users. The first of `metrics` stands in the main table, and runs are
    compared by it. Without `published` both protocols are the same.
    """

    name: str
    doc: str
    metrics: tuple[Metric, ...]
    strict: Protocol
    published: Protocol | None = None

    @property
    def primary(self) -> Metric:
        """The metric of the main table."""
        return self.metrics[0]

    def score(self, protocol: str, examples: Sequence[Example]) -> Judgement:
        """Score examples under a protocol, "strict" or "published"."""
        assert protocol in PROTOCOLS
        chosen = self.strict if protocol == STRICT else self.published or self.strict
        return chosen(examples)


def judge(examples: Sequence[Example], right: Callable[[Example], bool]) -> tuple[Outcome, ...]:
    """Return an outcome of 1 or 0 for each example."""
    return tuple(Outcome(e.id, e.text, e.answers, float(right(e))) for e in examples)


def share_right(outcomes: Sequence[Outcome]) -> Estimate:
    """Return the share of right outcomes in percent, with its Wilson interval."""
    return share([outcome.value == 1 for outcome in outcomes])


def published(name: str, metric: str) -> Protocol:
    """Return the rules of the scorer that the paper used under a name, which report one metric."""
    return partial(_published, name=name, metric=metric)


def _published(examples: Sequence[Example], *, name: str, metric: str) -> Judgement:
    from adafuse.metrics.published_scorer import MATCHERS

    matcher = MATCHERS[name]
    outcomes = judge(examples, lambda each: matcher.rule(each.text, each.answers) is not None)
    return Judgement(outcomes, {metric: share_right(outcomes)})
