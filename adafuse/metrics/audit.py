"""What a lenient scorer adds: what only `published` accepts, by the rule that accepted it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from adafuse.metrics.published_scorer import MATCHERS, Matcher
from adafuse.metrics.registry import SCORERS
from adafuse.metrics.scorer import Outcome, Prediction, trimmed

RULES = ("equal", "number", "containment", "substring", "dropped")


@dataclass(frozen=True, slots=True)
class Accepted(Prediction):
    """A prediction that only `published` accepts, by a rule, for the answer `gold`.

    Both are empty where it has no named rules; a pair that is dropped has no gold answer.
    """

    rule: str
    gold: str = ""


@dataclass(frozen=True, slots=True)
class Audit:
    """Both protocols on the rows that both score; `strict` and `published` count right answers.

    `empty` answers are nothing but white space, or missing. Of a metric that is not binary nothing
    is right or wrong, so they are None: `accepted` holds the pairs that `published` drops.
    """

    benchmark: str
    run: str
    n: int
    empty: int
    strict: int | None
    published: int | None
    accepted: tuple[Accepted, ...]
    only_strict: int | None

    @property
    def rules(self) -> Counter[str]:
        """How many of `accepted` each rule accepted."""
        return Counter(accepted.rule for accepted in self.accepted)


def audit(
    strict: Sequence[Outcome],
    published: Sequence[Outcome],
    scorer: str,
    *,
    benchmark: str,
    run: str,
) -> Audit:
    """Compare the outcomes of the same predictions under both protocols."""
    other = {outcome.id: outcome for outcome in published}
    pairs = [(outcome, other[outcome.id]) for outcome in strict if outcome.id in other]
    empty = [a for a, _ in pairs if not trimmed(a.text)]
    if not SCORERS[scorer].primary.binary:
        left_out = empty if SCORERS[scorer].published else []
        dropped = tuple(Accepted(a.id, a.text, a.answers, "dropped") for a in left_out)
        return Audit(benchmark, run, len(pairs), len(empty), None, None, dropped, None)
    accepted = tuple(_accepted(b, MATCHERS.get(scorer)) for a, b in pairs if b.value > a.value)
    return Audit(
        benchmark,
        run,
        n=len(pairs),
        empty=len(empty),
        strict=sum(a.value == 1 for a, _ in pairs),
        published=sum(b.value == 1 for _, b in pairs),
        accepted=accepted,
        only_strict=sum(a.value > b.value for a, b in pairs),
    )


def _accepted(outcome: Outcome, matcher: Matcher | None) -> Accepted:
    """Say by which rule, and for which of the gold answers, a prediction was accepted."""
    given, text = (outcome.id, outcome.text, outcome.answers), outcome.text
    rule = matcher.rule(text, outcome.answers) if matcher else None
    if matcher is None or rule is None:
        return Accepted(*given, "")
    gold = next(each for each in outcome.answers if matcher.rule(text, [each]) == rule)
    return Accepted(*given, rule, gold)
