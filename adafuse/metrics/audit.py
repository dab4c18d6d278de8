"""What a lenient scorer adds: what only `published` accepts, by the rule that accepted it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from adafuse.metrics.published_scorer import MATCHERS
from adafuse.metrics.registry import SCORERS
from adafuse.metrics.scorer import Outcome

RULES = ("equal", "number", "containment", "substring", "dropped")


@dataclass(frozen=True, slots=True)
class Accepted:
    """A prediction that only `published` accepts; `rule` is empty where no rule is known."""

    id: str
    rule: str
    text: str
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Audit:
    """Both protocols on the rows that both score; `strict` and `published` count right answers.

    In translation nothing is right or wrong, so they are None: `accepted` holds the pairs that
    `published` drops.
    """

    benchmark: str
    run: str
    n: int
    strict: int | None
    published: int | None
    accepted: tuple[Accepted, ...]
    only_strict: int | None

    @property
    def rules(self) -> Counter[str]:
        """How many of `accepted` each rule accepted."""
        return Counter(each.rule for each in self.accepted)


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
    if not SCORERS[scorer].primary.binary:
        dropped = [_accepted(a, "dropped") for a, _ in pairs if not a.text.strip()]
        return Audit(benchmark, run, len(pairs), None, None, tuple(dropped), None)
    matcher = MATCHERS.get(scorer)
    accepted = [
        _accepted(b, matcher.rule(b.text, b.answers) if matcher else None)
        for a, b in pairs
        if b.value > a.value
    ]
    return Audit(
        benchmark,
        run,
        n=len(pairs),
        strict=sum(a.value == 1 for a, _ in pairs),
        published=sum(b.value == 1 for _, b in pairs),
        accepted=tuple(accepted),
        only_strict=sum(a.value > b.value for a, b in pairs),
    )


def _accepted(outcome: Outcome, rule: str | None) -> Accepted:
    return Accepted(outcome.id, rule or "", outcome.text, outcome.answers)
