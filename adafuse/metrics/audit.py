"""What a lenient scorer adds: what only `published` accepts, by the rule that accepted it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from adafuse.metrics.published_scorer import MATCHERS
from adafuse.metrics.registry import SCORERS
from adafuse.metrics.scorer import Outcome, Prediction, trimmed

RULES = ("equal", "number", "containment", "substring", "dropped")


@dataclass(frozen=True, slots=True)
class Accepted(Prediction):
    """A prediction that only `published` accepts; `rule` is empty where it has no named rules."""

    rule: str


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
    rule = MATCHERS[scorer].rule if scorer in MATCHERS else lambda text, answers: None
    accepted = tuple(
        Accepted(b.id, b.text, b.answers, rule(b.text, b.answers) or "")
        for a, b in pairs
        if b.value > a.value
    )
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
