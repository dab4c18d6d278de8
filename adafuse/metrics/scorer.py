"""What a scorer is: how the texts of a benchmark are scored, and what it reports."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from unicodedata import category

from adafuse.errors import UserError
from adafuse.metrics.intervals import Estimate, bootstrap, wilson
from adafuse.plugins import is_outside, said

if TYPE_CHECKING:
    from adafuse.metrics.paired import PerRow

STRICT, PUBLISHED = "strict", "published"
PROTOCOLS = (STRICT, PUBLISHED)

Details = dict[str, str | int]


@dataclass(frozen=True, slots=True)
class Prediction:
    """A row to be scored: its id, decoded text ("" if there is none) and accepted answers."""

    id: str
    text: str
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome(Prediction):
    """A scored row: `text` and `answers` as they were compared, and its `value`.

    For a short answer `text` is the extracted prediction; for a translation both are one line in
    NFC. `value` is 1.0 or 0.0 for a binary metric, otherwise in the unit of the metric (for
    translations the BLEU of the sentence, 0 to 100, with effective order).
    """

    value: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a scorer returns.

    Attributes:
        outcomes: one per example, in their order.
        metrics: the score of all examples for each metric, by its name, with its 95 % interval.
        details: counts and signatures for the files of scores, such as that of sacrebleu.
    """

    outcomes: tuple[Outcome, ...]
    metrics: dict[str, Estimate]
    details: Details = field(default_factory=dict)


Rules = Callable[[Sequence[Prediction]], Judgement]


@dataclass(frozen=True, slots=True)
class Corpus:
    """How to compute a metric that is not a mean over examples, such as BLEU.

    Attributes:
        counts: computes the statistics of scored examples under a protocol, shape [examples, n].
        pooled: computes the score, 0 to 100, from any rows of these, as the bootstrap draws them.
    """

    counts: "Callable[[Sequence[Prediction], str], PerRow]"
    pooled: "Callable[[PerRow], float]"

    def rows(self, examples: "Sequence[Prediction]", protocol: str) -> "PerRow":
        """Return the `counts` of examples, of which each must have a row."""
        import numpy as np

        counts = np.asarray(self.counts(examples, protocol))
        if counts.ndim != 2 or len(counts) != len(examples):
            raise TypeError(
                f"`counts` of {len(examples)} examples has the shape {counts.shape}; return a row"
                " of numbers for each, shape [examples, n]"
            )
        return counts

    def estimate(self, counts: "PerRow") -> Estimate:
        """Return the score of `counts` with its 95 % interval by bootstrap."""
        low, high = bootstrap(len(counts), lambda chosen: self.score(counts[chosen]))
        return Estimate(self.score(counts), low, high)

    def score(self, counts: "PerRow") -> float:
        """Return the score of rows, which `pooled` cannot change: they are compared again."""
        view = counts.view()
        view.flags.writeable = False
        return self.pooled(view)


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that a scorer reports.

    Attributes:
        name: its name in files, and in the heads of the main table.
        label: its name elsewhere.
        binary: every value is 1 (right) or 0 (wrong); the metric is the percentage of 1.
        higher_is_better: of two scores, the higher is the better one.
        corpus: how to compute it from all examples at once; None: it is the mean of their values.
    """

    name: str
    label: str
    binary: bool = False
    higher_is_better: bool = True
    corpus: Corpus | None = None

    @property
    def in_percent(self) -> bool:
        """Whether it goes from 0 to 100, whoever made it; a mean is in the unit of its values."""
        return self.binary or self.corpus is not None

    @property
    def note(self) -> str:
        """What tables say after its name."""
        return "" if self.higher_is_better else ", lower is better"

    def merit(self, value: float) -> float:
        """Return a value so that of two the larger is better."""
        return value if self.higher_is_better else -value

    def rows(self, outcomes: "Sequence[Outcome]", protocol: str) -> "PerRow":
        """Return what `pooled` makes the score of, a row per outcome."""
        import numpy as np

        if self.corpus is not None:
            return self.corpus.rows(outcomes, protocol)
        values = np.array([outcome.value for outcome in outcomes])
        return values == 1 if self.binary else values

    def pooled(self, rows: "PerRow") -> float:
        """Return the score, in the unit of tables, of any choice of rows."""
        if self.corpus is not None:
            return self.corpus.score(rows)
        return float(rows.mean()) * (100 if self.binary else 1)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def trimmed(text: str) -> str:
    """Return a text without what cannot be seen at its ends: white space, U+FEFF and the like."""
    unseen = ("Cf", "Cc")
    shown = [n for n, c in enumerate(text) if not (c.isspace() or category(c) in unseen)]
    return text[shown[0] : shown[-1] + 1] if shown else ""


@dataclass(frozen=True, slots=True)
class Scorer:
    """A scoring of texts, which a benchmark names as its `scorer`.

    Attributes:
        name: the name that users write.
        doc: one line for users.
        metrics: what it reports. The first is in the main table, and runs are compared by it.
        strict: scores examples by this project's rules (protocol "strict").
        published: scores them by the rules of the paper's scorer; None: they are the same.
        unreadable: says what is wrong with an accepted answer that no text can be compared with,
            such as "has no number"; None if nothing is wrong.
        normalise: returns what is compared of an accepted answer. If it is empty for all answers of
            a row, the row can never be right.
        answer: returns the answer in a text, as `self_consistency` counts votes: texts with equal
            answers agree, and one with none ("") has no vote. None: a text has no single answer,
            as a translation.
        needs_spm: the scorer needs the SentencePiece model of spBLEU.
    """

    name: str
    doc: str
    metrics: tuple[Metric, ...]
    strict: Rules
    published: Rules | None = None
    unreadable: Callable[[str], str | None] | None = None
    normalise: Callable[[str], str] = trimmed
    answer: Callable[[str], str] | None = None
    needs_spm: bool = False

    @property
    def primary(self) -> Metric:
        """The metric of the main table."""
        return self.metrics[0]

    def check_answers(self, row: str, answers: Sequence[str]) -> None:
        """Raise a `UserError` if an accepted answer is `unreadable`; `row` names the row in it."""
        for answer in answers:
            if (wrong := self._asked("unreadable", answer)) is not None:
                raise UserError(
                    f"the gold answer {answer!r} of {row} {wrong}; correct it or use another scorer"
                )

    def never_right(self, answers: Sequence[str]) -> bool:
        """Whether all accepted answers of a row are empty after `normalise`."""
        return not any(self._asked("normalise", answer) for answer in answers)

    def _asked(self, part: Literal["unreadable", "normalise"], answer: str) -> str | None:
        """Return what a part says of an accepted answer."""
        function = getattr(self, part)
        try:
            found = function and function(answer)
        except Exception as error:
            if not is_outside(self):
                raise
            what = f"scorer {self.name!r}: `{part}` of {answer!r:.60} failed"
            raise UserError(f"{what}: {said(error, self)}") from error
        if not isinstance(found, str) and (found is not None or part == "normalise"):
            raise UserError(
                f"scorer {self.name!r}: `{part}` returned {found!r:.60}; return a text"
                + " or None" * (part == "unreadable")
            )
        return found

    def hopeless(self, rows: Mapping[str, Sequence[str]], owner: str) -> str | None:
        """Return a warning that names rows that can never be right; None if there are none.

        `rows` holds the accepted answers by id.

        Raises:
            UserError: no row can be right.
        """
        hopeless = {name: answers for name, answers in rows.items() if self.never_right(answers)}
        if not hopeless:
            return None
        name, answers = next(iter(hopeless.items()))
        message = (
            f"{owner}: {len(hopeless)} of {len(rows)} rows can never be right, for scorer"
            f" {self.name!r} finds no text equal to their accepted answers: {name!r}"
            f" ({answers[0]!r}); correct them or use another scorer"
        )
        if len(hopeless) == len(rows):
            raise UserError(message)
        return message

    def score(self, protocol: str, examples: Sequence[Prediction]) -> Judgement:
        """Score examples under a protocol, "strict" or "published".

        Raises:
            UserError: an answer is `unreadable`, or the rules fail or do not keep to `Judgement`.
        """
        assert protocol in PROTOCOLS
        if protocol == STRICT:
            for example in examples:
                self.check_answers(f"row {example.id!r}", example.answers)
        examples = tuple(examples)
        rules = self.strict if protocol == STRICT else self.published or self.strict
        try:
            found = rules(examples)
        except (KeyboardInterrupt, UserError):
            raise
        except BaseException as error:  # a plug-in may exit
            if not is_outside(self):
                raise
            raise UserError(f"scorer {self.name!r} failed: {said(error, self)}") from error
        wrong = self._wrong(found, [example.id for example in examples])
        if wrong is None and is_outside(self):
            wrong = self._wrong_corpus(found, protocol)
        if wrong is not None:
            raise UserError(f"scorer {self.name!r} {wrong}")
        return found

    def _wrong_corpus(self, found: Judgement, protocol: str) -> str | None:
        """Return what is wrong with metrics of the whole corpus, if anything."""
        for metric in self.metrics:
            if metric.corpus is None or metric.name not in found.metrics:
                continue
            try:
                rows = metric.rows(found.outcomes, protocol)
                pooled, score = metric.pooled(rows), found.metrics[metric.name].value
            except Exception as error:  # noqa: BLE001 - a plug-in raises anything
                return f"cannot pool its {metric.name}: {said(error, self)}"
            if not abs(pooled - score) <= 1e-6:
                return (
                    f"reports the {metric.name} {score:g}, but its `pooled` gives {pooled:g} for"
                    " the same rows; report that"
                )
        return None

    def _wrong(self, found: Judgement, ids: Sequence[str]) -> str | None:
        """Return what is wrong with a judgement, if anything."""
        if not isinstance(found, Judgement):
            return f"returns {type(found).__name__}; return a Judgement"
        for part, kind in (("outcomes", tuple), ("metrics", dict), ("details", dict)):
            if not isinstance(own := getattr(found, part), kind):
                return f"returns {type(own).__name__} as {part}; return a {kind.__name__}"
        given = [getattr(outcome, "id", None) for outcome in found.outcomes]
        if given != [*ids]:
            return (
                f"returns {len(given)} outcomes of {len(ids)} rows, or in another order; return a"
                " tuple with one for each row, in their order"
            )
        for name, detail in found.details.items():
            if not isinstance(name, str) or not isinstance(detail, str | int):
                return f"reports the detail {name!r}: {detail!r:.60}; give texts and whole numbers"
        binary = self.primary.binary
        allowed = "1 or 0, as its metric is binary" if binary else "a finite int or float"
        for outcome in found.outcomes:
            if not _is_number(outcome.value) or (binary and outcome.value not in (0, 1)):
                return f"gives row {outcome.id!r} the value {outcome.value!r}; return {allowed}"
            if not all(isinstance(each, str) for each in (outcome.text, *outcome.answers)):
                return f"gives row {outcome.id!r} a text or answers that are none; return texts"
        declared = [metric.name for metric in self.metrics]
        binaries = [metric.name for metric in self.metrics if metric.binary]
        if self.primary.name not in found.metrics or not found.metrics.keys() <= {*declared}:
            return f"reports {[*found.metrics]}, but declares {declared}; report what it declares"
        for name, estimate in found.metrics.items():
            if not isinstance(estimate, Estimate):
                return f"reports {estimate!r:.60} as {name!r}; return an intervals.Estimate"
            ends = [end for end in (estimate.low, estimate.value, estimate.high) if end is not None]
            if not all(map(_is_number, ends)) or sorted(ends) != ends:
                return (
                    f"reports {estimate} as {name!r}; return finite numbers, low <= value <= high"
                )
            right = estimate.value / 100 * len(ids)
            whole = name == self.primary.name or abs(right - round(right)) < 1e-6
            if name in binaries and not (whole and min(ends) >= 0 and max(ends) <= 100):
                return f"reports {estimate} as {name!r}; return the rows of value 1 in percent"
        if self.primary.corpus is None and found.outcomes:
            mean = self.primary.pooled(self.primary.rows(found.outcomes, STRICT))
            score = found.metrics[self.primary.name].value
            if abs(mean - score) > 1e-6:
                shares = "; intervals.mean takes values from 0 to 1, those of outcomes go to 100"
                return (
                    f"reports the score {score:g}, but its outcomes give {mean:g}: a score is the"
                    f" mean of their values{', in percent' * binary}"
                    f"{shares * math.isclose(score, 100 * mean)}"
                )
        return None


def shown_lines(text: str) -> list[str]:
    r"""Return the lines of a text that are not blank, `trimmed`; they end at \n, \r\n or \r."""
    return [line for line in map(trimmed, re.split(r"[\r\n]", text)) if line]


def judge(
    examples: Sequence[Prediction], right: Callable[[Prediction], bool]
) -> tuple[Outcome, ...]:
    """Return an outcome of 1 or 0 for each example."""
    return tuple(Outcome(e.id, e.text, e.answers, float(right(e))) for e in examples)


def share_right(outcomes: Sequence[Outcome]) -> Estimate:
    """Return the share of right outcomes in percent, with its Wilson interval."""
    right, n = sum(outcome.value == 1 for outcome in outcomes), len(outcomes)
    low, high = wilson(right, n)
    return Estimate(100 * right / n, 100 * low, 100 * high)


def accuracy(metric: str, right: Callable[[Prediction], bool]) -> Rules:
    """Return the rules that report one metric, the share of right examples."""

    def rules(examples: Sequence[Prediction]) -> Judgement:
        outcomes = judge(examples, right)
        return Judgement(outcomes, {metric: share_right(outcomes)})

    return rules


def corpus_rules(metric: Metric) -> Rules:
    """Return the rules that report one corpus metric; an example's value is its score alone."""
    corpus = metric.corpus
    assert corpus is not None, metric.name

    def rules(examples: Sequence[Prediction]) -> Judgement:
        counts = corpus.rows(examples, STRICT)
        scored = zip(examples, counts, strict=True)
        outcomes = [Outcome(e.id, e.text, e.answers, corpus.score(row[None])) for e, row in scored]
        return Judgement(tuple(outcomes), {metric.name: corpus.estimate(counts)})

    return rules


def published(scorer: str, metric: str) -> Rules:
    """Return the rules of the scorer that the paper used."""

    def right(example: Prediction) -> bool:
        from adafuse.metrics.published_scorer import MATCHERS

        return MATCHERS[scorer].rule(example.text, example.answers) is not None

    return accuracy(metric, right)
