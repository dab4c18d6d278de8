"""What a lenient scorer adds: what only `published` accepts, by the rule that let it through."""

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from adafuse.scoring.markdown import escape
from adafuse.scoring.outcomes import Outcome
from adafuse.scoring.published_match import MATCHERS

RULES = ("equal", "number", "containment", "substring", "dropped")
EXAMPLES = 3
_COLUMNS = ("benchmark", "run", "n", "strict", "published", "only_published", "only_strict")


@dataclass(frozen=True, slots=True)
class Accepted:
    """A prediction that only `published` accepts."""

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
        """How many of `accepted` each rule let through."""
        return Counter(each.rule for each in self.accepted)


def audit(
    strict: Sequence[Outcome],
    published: Sequence[Outcome],
    metric: str,
    *,
    benchmark: str,
    run: str,
) -> Audit:
    """Compare the outcomes of the same predictions under both protocols."""
    other = {outcome.id: outcome for outcome in published}
    pairs = [(each, other[each.id]) for each in strict if each.id in other]
    if metric not in MATCHERS:
        dropped = tuple(
            Accepted(a.id, "dropped", a.text, a.answers) for a, _ in pairs if not a.text.strip()
        )
        return Audit(benchmark, run, len(pairs), None, None, dropped, None)
    accepted = tuple(_accepted(b, metric) for a, b in pairs if b.value > a.value)
    return Audit(
        benchmark,
        run,
        n=len(pairs),
        strict=sum(a.value == 1 for a, _ in pairs),
        published=sum(b.value == 1 for _, b in pairs),
        accepted=accepted,
        only_strict=sum(a.value > b.value for a, b in pairs),
    )


def _accepted(outcome: Outcome, metric: str) -> Accepted:
    rule = MATCHERS[metric].rule(outcome.text, outcome.answers)
    assert rule is not None
    return Accepted(outcome.id, rule, outcome.text, outcome.answers)


def audit_csv(audits: Sequence[Audit]) -> str:
    """Return counts as CSV: a line per benchmark and run, a column per rule."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_COLUMNS, *(f"rule_{rule}" for rule in RULES)])
    writer.writerows(_counts(each) for each in audits)
    return text.getvalue()


def _counts(each: Audit) -> list[str]:
    numbers = [each.n, each.strict, each.published, len(each.accepted), each.only_strict]
    rules = [each.rules[rule] for rule in RULES]
    cells = ("" if number is None else str(number) for number in [*numbers, *rules])
    return [each.benchmark, each.run, *cells]


def audit_markdown(audits: Sequence[Audit]) -> str:
    """Return counts and a few examples of each rule as Markdown."""
    head = [*(name.replace("_", " ") for name in _COLUMNS), *RULES]
    rule = ["---"] * 2 + ["---:"] * (len(head) - 2)
    table = [_line(map(escape, _counts(each))) for each in audits]
    legend = (
        "Right answers under each protocol on the same rows, and by which published rule those"
        " were accepted that strict refuses; `dropped` counts empty translations, which published"
        " leaves out of the corpus."
    )
    examples = [line for each in audits for line in _examples(each)]
    lines = ["# What only the published scorer accepts", "", _line(head), _line(rule), *table]
    return "\n".join([*lines, "", legend, *examples]) + "\n"


def _examples(each: Audit) -> list[str]:
    shown = [one for rule in RULES for one in _first(each, rule)]
    if not shown:
        return []
    title = f"## {escape(each.run)} on {escape(each.benchmark)}"
    rows = [
        _line([one.rule, escape(one.id), escape(one.text[-80:]), escape(one.answers[0][-80:])])
        for one in shown
    ]
    return ["", title, "", _line(["rule", "id", "prediction", "gold"]), _line(["---"] * 4), *rows]


def _first(each: Audit, rule: str) -> list[Accepted]:
    return [one for one in each.accepted if one.rule == rule and one.text.strip()][:EXAMPLES]


def _line(cells: "Sequence[str] | map[str]") -> str:
    return f"| {' | '.join(cells)} |"
