"""Whether two or more models are worth fusing, by what they write for development rows."""

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Any

from adafuse.benchmarks.shards import PreparedRow
from adafuse.development.gate_fitting import Development, failures
from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.methods import METHODS
from adafuse.metrics.cofailure import CoFailure, co_failure
from adafuse.metrics.compare import Comparison, compare_runs
from adafuse.metrics.intervals import Estimate
from adafuse.metrics.score import ScoredRun, evaluate
from adafuse.metrics.scorer import Metric
from adafuse.records.result import Chat, Result
from adafuse.storage.traces import result_columns

FEW_ROWS = 50
"""With fewer rows, only large differences can be told."""
MOSTLY = 50.0  # of more answers cut, in percent, nothing can be told
SAMPLES = 3
MANY = 0.1  # of more answers that are empty, or wrong in form only, the verdict speaks
LITTLE = 2.0
"""Points below which the answers of one model add little to those of the other."""


@dataclass(frozen=True, slots=True)
class Member:
    """A model on its own: its score, and the share of rows on which it alone is best.

    `cut` is the share of its answers that a limit cut; `ends` are the shares of all stop reasons.
    """

    name: str
    score: Estimate
    alone: float
    seconds: float
    cut: float
    ends: dict[str, float]


@dataclass(frozen=True, slots=True)
class Answered:
    """A row as it was answered: by each model, then by all together."""

    id: str
    prompt: str
    accepted: tuple[str, ...]
    texts: tuple[str, ...]
    stop_reasons: tuple[str, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Advice:
    """What development rows say; scores and shares are in percent.

    `ceiling` is the score of an oracle that takes the better answer of each row; `co_failure`
    counts the rows that all models get wrong, None of metrics without right and wrong rows;
    `agreement` is the share of rounds in which all models proposed what was committed, None for a
    method that commits tokens; `forwards` are those of all models per token of all, None where no
    model holds the text (`llm_blender`); `seconds` is per row, `cut` the share of fused answers
    that a limit cut, and `ends` those of all stop reasons. `against` compares the fused texts with
    the better model, whose number is `best`. `answers` are all rows, `samples` a few, those with
    different texts first.
    """

    rows: int
    metric: str
    members: tuple[Member, ...]
    fused: Estimate
    ceiling: float
    co_failure: CoFailure | None
    agreement: float | None
    forwards: float | None
    seconds: float
    cut: float
    ends: dict[str, float]
    against: Comparison
    best: int
    verdict: str
    samples: tuple[Answered, ...]
    answers: tuple[Answered, ...]

    @property
    def times(self) -> tuple[float, float]:
        """How many times as long as all models, one after the other, and as the best, it takes."""
        alone = [member.seconds for member in self.members]
        return self.seconds / sum(alone), self.seconds / alone[self.best]


def advise(
    ensemble: Ensemble, rows: Development, *, method: str = "adafuse", **options: Any
) -> Advice:
    """Decode development rows with each model and with all of them, and say what is worth it.

    Raises:
        UserError: fewer than two models, rows without answers, or a server that failed.
    """
    if len(ensemble.models) < 2:
        raise UserError("only one model was given, so there is nothing to fuse; give two or more")
    if not rows.prompts:
        raise UserError("there are no development rows; give some with answers")
    clock, alone = [time.perf_counter()], list[list[Result]]()
    for model in ensemble.models:
        alone.append(rows.decoded_by(Ensemble([model]), "single", {}))
        clock.append(time.perf_counter())
    fused = rows.decoded_by(ensemble, method, options)
    clock.append(time.perf_counter())
    seconds = [(after - before) / len(rows.prompts) for before, after in pairwise(clock)]
    return _judged(ensemble, rows, method, alone, fused, seconds)


def _judged(
    ensemble: Ensemble,
    rows: Development,
    method: str,
    alone: Sequence[Sequence[Result]],
    fused: Sequence[Result],
    seconds: Sequence[float],
) -> Advice:
    """Return what the texts of each model, and those of all together, come to."""
    failed = [failures(results, rows.name) for results in (*alone, fused)]
    names = [str(number) for number in range(len(alone))]
    singles = [scored(rows, name, found) for name, found in zip(names, alone, strict=True)]
    together = scored(rows, "fused", fused)
    metric = together.metric
    values = ([metric.merit(outcome.value) for outcome in one.outcomes] for one in singles)
    by_row = list(zip(*values, strict=True))
    best = [row.index(max(row)) for row in by_row]
    oracle = [alone[number][row] for row, number in enumerate(best)]
    leaders = [n for n, row in zip(best, by_row, strict=True) if row.count(max(row)) == 1]
    runs = {name: ("single", [name]) for name in names} | {"fused": (method, names)}
    better = max(range(len(singles)), key=lambda number: metric.merit(singles[number].value))
    tests = [t for t in compare_runs(runs, [*singles, together]) if t.role == "member"]
    members = [
        Member(
            name=model.name,
            score=one.score.main,
            alone=100 * leaders.count(number) / len(by_row),
            seconds=seconds[number],
            cut=one.score.cut_share or 0.0,
            ends=_ends(alone[number]),
        )
        for number, (model, one) in enumerate(zip(ensemble.models, singles, strict=True))
    ]
    answers = _answers(rows, [*alone, fused], [*singles, together])
    tokens = sum(sum(result.tokens) for result in fused)
    advice = Advice(
        rows=len(rows.prompts),
        metric=metric.label + metric.note,
        members=tuple(members),
        fused=together.score.main,
        ceiling=scored(rows, "oracle", oracle).value,
        co_failure=co_failure(singles, together),
        agreement=None if METHODS[method].one_token else _agreement(fused, len(alone)),
        forwards=sum(sum(r.forwards) for r in fused) / tokens if tokens else None,
        seconds=seconds[-1],
        cut=together.score.cut_share or 0.0,
        ends=_ends(fused),
        against=replace(tests[better], against=ensemble.models[better].name),
        best=better,
        verdict="",
        samples=tuple(sorted(answers, key=lambda row: len({*row.texts}) == 1)[:SAMPLES]),
        answers=answers,
    )
    notes = [*filter(None, failed), *_forms(advice, metric)]
    verdict = " ".join([_verdict(advice, better, metric), *dict.fromkeys(notes)])
    return replace(advice, verdict=verdict)


def scored(rows: Development, run: str, results: Sequence[Result]) -> ScoredRun:
    """Score what a run has written for the rows."""
    named = [*zip(rows.names, rows.answers, results, strict=True)]
    prepared = [PreparedRow(name, "", "", tuple(answers)) for name, answers, _ in named]
    texts = [{"id": name, **result_columns(result)} for name, _, result in named]
    return evaluate(prepared, texts, rows.scorer, benchmark=rows.name, run=run)


def _agreement(results: Sequence[Result], models: int) -> float | None:
    agreed = [taken.agreed_by(models) for result in results for taken in result.rounds]
    return 100 * fmean(agreed) if agreed else None


def _ends(results: Sequence[Result]) -> dict[str, float]:
    counts = Counter(result.stop_reason for result in results)
    return {reason: 100 * count / len(results) for reason, count in counts.most_common()}


def _answers(
    rows: Development, results: Sequence[Sequence[Result]], judged: Sequence[ScoredRun]
) -> tuple[Answered, ...]:
    """Return each row with its answers by each model and by all together."""
    asked = [p.turns[-1].content if isinstance(p, Chat) else p for p in rows.prompts]
    values = zip(*([outcome.value for outcome in run.outcomes] for run in judged), strict=True)
    texts = zip(*results, strict=True)
    by_row = zip(rows.names, asked, rows.answers, texts, values, strict=True)
    return tuple(
        Answered(
            name,
            prompt,
            tuple(accepted),
            tuple(result.answer for result in row),
            tuple(result.stop_reason for result in row),
            tuple(found),
        )
        for name, prompt, accepted, row, found in by_row
    )


def _verdict(advice: Advice, better: int, metric: Metric) -> str:
    """Say in a few sentences what the figures mean; without any, what to do first."""
    found, member = advice.against, advice.members[better]
    if (cut := max(advice.cut, *(other.cut for other in advice.members))) > MOSTLY:
        return (
            f"No verdict: limits cut {cut:.0f} % of the answers of a model or of the fused ones."
            " Raise max_new_tokens, or give what ends an answer as stop."
        )
    scores = [advice.fused, *(other.score for other in advice.members)]
    if metric.higher_is_better and not any(score.value for score in scores):
        return (
            "No verdict: neither the models nor the ensemble score a point. Look at the answers:"
            " check the template, stop, the scorer and the accepted answers, or take easier rows."
        )
    gain, room = found.gain, metric.merit(advice.ceiling - member.score.value)
    unequal = any(_apart(member.score, other.score) for other in advice.members)
    estimate = Estimate(found.difference, found.low, found.high)
    interval = f"{found.difference:+.1f}{estimate.ends(form=' [{}, {}]', sign='+')}"
    equal = [m.name for m in advice.members if m.score.value == member.score.value]
    best = "the best" if len(equal) == 1 else f"which scores as {' and '.join(equal[1:])}"
    best += metric.note
    said = [f"Fused, the models score {interval} points against {member.name} alone, {best}."]
    if not found.alike:
        said.append(
            f"These cannot be compared: max_new_tokens cut {advice.cut:.0f} % of the fused answers"
            f" and {member.cut:.0f} % of those of {member.name}, and {found.beyond:.0f} % have more"
            f" tokens than it allows; raise it. Rows that failed: {found.failed} and"
            f" {found.other_failed}."
        )
    elif found.significant and gain > 0:
        said.append("Fuse them.")
    elif found.significant:
        said.append("Do not fuse them in this way.")
    else:
        said.append(found.undecided("fused texts"))
    if room < LITTLE and gain < LITTLE:
        said.append(
            f"There is little to gain: always choosing the better of the models' answers would be"
            f" {room:.1f} points better."
        )
    elif gain < room / 2:
        said.append(
            f"There is more to gain, {room:.1f} points with the better answer of each row: try"
            " branching 3, other methods, or a gate (adafuse fit)."
        )
    if unequal and gain <= 0:
        said.append("The models are unequal: fit a gate, or give the better one (more) weight.")
    if advice.rows < FEW_ROWS:
        said.append(f"So few rows ({advice.rows}) show only large differences; use more.")
    return " ".join(said)


def _forms(advice: Advice, metric: Metric) -> Iterator[str]:
    """Say where scores tell of the form of answers more than of what is known."""
    names = [*(member.name for member in advice.members), "the ensemble"]
    given = [*zip(*(row.texts for row in advice.answers), strict=True)]
    many = MANY * advice.rows
    empty = {
        n: sum(not text.strip() for text in texts) for n, texts in zip(names, given, strict=True)
    }
    if found := [f"{count} of {name}" for name, count in empty.items() if count > many]:
        yield f"Empty answers of {advice.rows}: {', '.join(found)}; look at the prompt and stop."
    if not metric.binary:
        return
    inside = {
        name: sum(
            row.values[n] != 1 and any(_words(a) in _words(row.texts[n]) for a in row.accepted)
            for row in advice.answers
        )
        for n, name in enumerate(names)
    }
    if max(inside.values()) > many:
        counts = ", ".join(f"{count} of {name}" for name, count in inside.items())
        yield (
            f"Wrong answers that contain an accepted one: {counts}. So the scores tell whether"
            " answers have the form that the scorer wants, too: look at them (--answers), and give"
            " few-shot examples, stop, or a chat template, or another scorer."
        )


def _words(text: str) -> str:
    """Return the words of a text in lower case, with a space on each side."""
    words = re.findall(r"\w+", text.lower())
    return f" {' '.join(words)} "


def _apart(one: Estimate, other: Estimate) -> bool:
    """Whether the intervals of two scores have nothing in common."""
    return any(
        low is not None and high is not None and low > high
        for low, high in ((one.low, other.high), (other.low, one.high))
    )
