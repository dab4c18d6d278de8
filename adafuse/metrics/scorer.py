"""What a scorer is: how the texts of a benchmark are scored, and what it reports."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from unicodedata import category

from adafuse.errors import UserError
from adafuse.metrics.intervals import Estimate, bootstrap, wilson

if TYPE_CHECKING:
    from adafuse.metrics.paired import PerRow

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
class Outcome(Example):
    """A scored example; `text` is what was compared: of a short answer its prediction.

    Both `text` and `answers` of a translation are one line in NFC.

    `value` is 1.0 or 0.0 for a binary metric, else in the unit of the metric (for translations the
    sentence's BLEU, 0 to 100, effective order).
    """

    value: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """Outcomes in the order of the examples, corpus metrics by name, signatures and counts."""

    outcomes: tuple[Outcome, ...]
    metrics: dict[str, Estimate]
    details: Details = field(default_factory=dict)


Rules = Callable[[Sequence[Example]], Judgement]


@dataclass(frozen=True, slots=True)
class Corpus:
    """How the score of a corpus follows from all its examples, not from the mean of their values.

    `counts` returns the statistics of scored examples under a protocol, a row for each; `pooled`
    the score, 0 to 100, of any of these rows, as a bootstrap draws them.
    """

    counts: "Callable[[Sequence[Example], str], PerRow]"
    pooled: "Callable[[PerRow], float]"

    def estimate(self, counts: "PerRow") -> Estimate:
        """Return the score of rows of `counts` with its bootstrap interval."""
        low, high = bootstrap(len(counts), lambda chosen: self.pooled(counts[chosen]))
        return Estimate(self.pooled(counts), low, high)


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that a scorer reports: its name in files, and its label on pages and figures.

    A `binary` metric is the share of examples that are right (1), not wrong (0). Any other metric
    is the mean of the examples' values, or follows from all examples as `corpus` says.
    """

    name: str
    label: str
    binary: bool = False
    higher_is_better: bool = True
    corpus: Corpus | None = None

    def merit(self, value: float) -> float:
        """Return a value so that of two the larger is better."""
        return value if self.higher_is_better else -value

    def rows(self, outcomes: "Sequence[Outcome]", protocol: str) -> "PerRow":
        """Return what `pooled` makes the score of, a row per outcome."""
        import numpy as np

        if self.corpus is not None:
            return self.corpus.counts(outcomes, protocol)
        values = np.array([outcome.value for outcome in outcomes])
        return values == 1 if self.binary else values

    def pooled(self, rows: "PerRow") -> float:
        """Return the score, in the unit of tables, of any choice of rows."""
        if self.corpus is not None:
            return self.corpus.pooled(rows)
        return float(rows.mean()) * (100 if self.binary else 1)


def trimmed(text: str) -> str:
    """Return a text without what cannot be seen at its ends: white space, U+FEFF and the like."""
    unseen = ("Cf", "Cc")
    shown = [n for n, c in enumerate(text) if not (c.isspace() or category(c) in unseen)]
    return text[shown[0] : shown[-1] + 1] if shown else ""


@dataclass(frozen=True, slots=True)
class Scorer:
    """What `scorer` of a benchmark names; `doc` is one line for users.

    The first of `metrics` stands in the main table, and runs are compared by it. Without
    `published` both protocols are the same. `unreadable` says what is wrong with an accepted answer
    that cannot be scored against, such as "has no number"; None if nothing is. `normalise` returns
    what is compared of an accepted answer: a row of which that is empty can never be right.
    `needs_spm`: it needs the SentencePiece model of spBLEU.
    """

    name: str
    doc: str
    metrics: tuple[Metric, ...]
    strict: Rules
    published: Rules | None = None
    unreadable: Callable[[str], str | None] | None = None
    normalise: Callable[[str], str] = trimmed
    needs_spm: bool = False

    @property
    def primary(self) -> Metric:
        """The metric of the main table."""
        return self.metrics[0]

    def check_answers(self, row: str, answers: Sequence[str]) -> None:
        """Refuse accepted answers that cannot be read; `row` says whose they are."""
        for answer in answers:
            if self.unreadable is not None and (wrong := self.unreadable(answer)) is not None:
                raise UserError(
                    f"the gold answer {answer!r} of {row} {wrong}; correct it or use another scorer"
                )

    def never_right(self, answers: Sequence[str]) -> bool:
        """Whether nothing that is compared is left of any accepted answer."""
        return not any(map(self.normalise, answers))

    def hopeless(self, rows: Mapping[str, Sequence[str]], owner: str) -> str | None:
        """Say which rows, of accepted answers by id, can never be right; refuse it if none can."""
        found = {name: answers for name, answers in rows.items() if self.never_right(answers)}
        if not found:
            return None
        name, answers = next(iter(found.items()))
        told = (
            f"{owner}: {len(found)} of {len(rows)} rows can never be right, for scorer"
            f" {self.name!r} compares nothing of their accepted answers: {name!r} ({answers[0]!r});"
            " correct them or use another scorer"
        )
        if len(found) == len(rows):
            raise UserError(told)
        return told

    def score(self, protocol: str, examples: Sequence[Example]) -> Judgement:
        """Score examples under a protocol, "strict" or "published"."""
        assert protocol in PROTOCOLS
        if protocol == STRICT:
            for example in examples:
                self.check_answers(f"row {example.id!r}", example.answers)
        rules = self.strict if protocol == STRICT else self.published or self.strict
        return rules(examples)


def shown_lines(text: str) -> list[str]:
    r"""Return the lines of a text that are not blank, `trimmed`; they end at \n, \r\n or \r."""
    return [line for line in map(trimmed, re.split(r"[\r\n]", text)) if line]


def judge(examples: Sequence[Example], right: Callable[[Example], bool]) -> tuple[Outcome, ...]:
    """Return an outcome of 1 or 0 for each example."""
    return tuple(Outcome(e.id, e.text, e.answers, float(right(e))) for e in examples)


def share_right(outcomes: Sequence[Outcome]) -> Estimate:
    """Return the share of right outcomes in percent, with its Wilson interval."""
    right, n = sum(outcome.value == 1 for outcome in outcomes), len(outcomes)
    low, high = wilson(right, n)
    return Estimate(100 * right / n, 100 * low, 100 * high)


def accuracy(metric: str, right: Callable[[Example], bool]) -> Rules:
    """Return the rules that report one metric, the share of right examples."""

    def rules(examples: Sequence[Example]) -> Judgement:
        outcomes = judge(examples, right)
        return Judgement(outcomes, {metric: share_right(outcomes)})

    return rules


def corpus_rules(metric: Metric) -> Rules:
    """Return the rules that report one corpus metric; an example's value is its score alone."""
    corpus = metric.corpus
    assert corpus is not None, metric.name

    def rules(examples: Sequence[Example]) -> Judgement:
        counts = corpus.counts(examples, STRICT)
        scored = zip(examples, counts, strict=True)
        outcomes = [Outcome(e.id, e.text, e.answers, corpus.pooled(row[None])) for e, row in scored]
        return Judgement(tuple(outcomes), {metric.name: corpus.estimate(counts)})

    return rules


def published(scorer: str, metric: str) -> Rules:
    """Return the rules of the scorer that the paper used."""

    def right(example: Example) -> bool:
        from adafuse.metrics.published_scorer import MATCHERS

        return MATCHERS[scorer].rule(example.text, example.answers) is not None

    return accuracy(metric, right)
