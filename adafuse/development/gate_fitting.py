"""Fits a gate on development rows: `adafuse fit`, and the workflow's step `fit`.

Decoding uses it: `fusion: learned`, in `adafuse.decoding.gate`.

What a choice is worth is found out by making it: a row is decoded once, and then once more for each
other candidate of its rounds, which is committed instead. The benchmark's own scorer says what came
of either. So the expected score of a gate that draws its choices is known, and with it the exact
policy gradient (objective `reward`). Objective `likelihood` is cheaper: it follows a reference
answer as long as some candidate does, and asks for that candidate.
"""

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from adafuse.decoding.candidates import Pool, Span
from adafuse.decoding.fusion import LEARNED, PoolFusion
from adafuse.decoding.gate import (
    DEVELOPMENT,
    MODEL_FEATURES,
    SPAN_FEATURES,
    FittedModel,
    model_features,
    span_features,
)
from adafuse.decoding.round import Example
from adafuse.decoding.run import Run
from adafuse.decoding.words import Settings
from adafuse.development.gate_file import SHARES, FittedGate, Provenance, prompt_hashes
from adafuse.development.gate_learning import Objective, RatedRound, learned
from adafuse.ensemble import Ensemble, with_bar
from adafuse.errors import UserError
from adafuse.methods import resolve
from adafuse.metrics import scorer as scoring
from adafuse.metrics.registry import scorer_named
from adafuse.models.files import keys_now
from adafuse.options import parse
from adafuse.records.result import Chat, Prompt, Result, Round, as_text
from adafuse.records.served import are_same
from adafuse.storage.journal import Journal, digest_of
from adafuse.storage.traces import result_columns, result_from
from adafuse.tokenization.thoughts import Thoughts, shared_thoughts
from adafuse.version import versions

logger = logging.getLogger(__name__)

MOST_CHOICES = 32
"""At most this many candidates of a row are tried, those that lost by least."""
CandidateKey = tuple[str, bool]
"""A candidate by its text, and whether END is in it."""
Guide = Callable[[Example, Pool], Span | None]
"""Says which candidate of a round is committed; None: that of the rule."""
Guides = Sequence["partial[Span | None]"]
"""One for each prompt, or none; their arguments tell them apart in a journal."""


@dataclass(frozen=True)
class Development:
    """Rows to fit on; `scorer` is a name, `settings` are those of `Ensemble.stream`.

    Rows without `ids` have their numbers, from 1; `questions` are what prompts ask, without what is
    around them. `progress` shows a bar while texts are decoded.
    """

    name: str
    prompts: Sequence[Prompt]
    answers: Sequence[Sequence[str]]
    scorer: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    ids: Sequence[str] = ()
    questions: Sequence[str] = ()
    progress: bool = False

    @property
    def forms(self) -> list[tuple[Prompt, ...]]:
        """The prompt of each row, and its question if that is known."""
        return [*zip(*filter(None, (self.prompts, self.questions)), strict=True)]

    @property
    def names(self) -> Sequence[str]:
        return self.ids or [str(number) for number, _ in enumerate(self.prompts, 1)]

    def decoded_by(
        self,
        ensemble: Ensemble,
        method: str,
        options: Mapping[str, Any],
        kept: "Kept | None" = None,
    ) -> list[Result]:
        """Return what an ensemble writes after each prompt; what is `kept` is not decoded again.

        Raises:
            UserError: a setting that is not allowed, or a server that failed.
        """
        return Fitter(ensemble, method, options, kept).decode(self, self.prompts, ())


@dataclass(eq=False)
class Guided(Example):
    """An example in which `guide` names what is committed, as long as it knows a candidate."""

    guide: Guide = field(default=lambda *_: None)

    def select(self, pool: Pool, fuse: PoolFusion) -> Span:
        best, guided = super().select(pool, fuse), self.guide(self, pool)
        if guided is None:
            return best
        words = len(guided.text.split())
        place = pool.candidates.index(guided)
        self.rounds[-1] = replace(self.rounds[-1], selected=place, words=words)
        return guided


@dataclass(frozen=True)
class Kept:
    """The file in which finished texts stay, so that a fit that was interrupted goes on.

    `same` is the digest of all that they have in common: models, method and settings.
    """

    file: Path
    same: str

    def journal(self, prompts: Sequence[Prompt], guides: Guides) -> Journal:
        """Return the journal for one text per prompt, with ids from "0"."""
        asked = [[isinstance(prompt, Chat), as_text(prompt)] for prompt in prompts]
        for each, guide in zip(asked, guides, strict=bool(guides)):
            each += [guide.func.__name__, guide.args]
        return Journal(
            self.file, {str(n): digest_of(self.same, each) for n, each in enumerate(asked)}
        )


@dataclass(frozen=True)
class Fitter:
    """Decodes development rows with a method, and finds out the cases of a gate for it."""

    ensemble: Ensemble
    method: str
    options: Mapping[str, Any]
    kept: Kept | None = None

    def cases(self, rows: Development, objective: Objective) -> tuple[list[RatedRound], float]:
        """Return the rounds from which a choice can be learned, and a worth of 1 in points."""
        if objective == "likelihood":
            return list(self._followed(rows)), 100.0
        base = self._decode_rows(rows)
        choices = [
            (index, number, (other.text, other.ends))
            for index, result in enumerate(base)
            for number, other in _least_lost(result)
        ]
        guides = [
            partial(_on_course, [*map(_choice, base[row].rounds[:number]), choice])
            for row, number, choice in choices
        ]
        logger.info("%s: %d other choices are tried", rows.name, len(choices))
        prompts = [rows.prompts[row] for row, _, _ in choices]
        tried = self.decode(rows, prompts, guides, with_rounds=False)
        owners = [*range(len(base)), *(row for row, _, _ in choices)]
        worth, points = _worth(rows, owners, [*base, *tried])
        found: dict[tuple[int, int], dict[CandidateKey, float]] = defaultdict(dict)
        for (row, number, choice), value in zip(choices, worth[len(base) :], strict=True):
            found[row, number][choice] = value
        cases = [
            self._case(row, base[row].rounds[number], {**values, taken: worth[row]}, taken)
            for (row, number), values in found.items()
            for taken in [_choice(base[row].rounds[number])]
        ]
        return cases, points

    def _followed(self, rows: Development) -> Iterator[RatedRound]:
        def guided(answers: Sequence[str], example: Example, pool: Pool) -> Span | None:
            span: Span | None = _following(answers, example.text, pool.candidates, example.thoughts)
            return span

        guides = [partial(guided, answers) for answers in rows.answers]
        for row, result in enumerate(self._decode_rows(rows, guides)):
            text, marks = "", self._marks(rows.prompts[row]) if result.thoughts else None
            for taken in result.rounds:
                scored = _scored(taken.candidates)
                right = _following(rows.answers[row], text, taken.candidates, marks)
                if right is None:
                    if marks is None or marks.answered(text) or taken.selected is None:
                        break
                    text += taken.candidates[taken.selected].text
                    continue
                text += right.text
                values = {(s.text, s.ends): float(s is right) for s in scored}
                if len(values) > 1:
                    best = min(scored, key=lambda s: s.fused)
                    yield self._case(row, taken, values, (best.text, best.ends))

    def _marks(self, prompt: Prompt) -> Thoughts | None:
        models = self.ensemble.models
        return shared_thoughts(models, prompt, [model.prompt_ids(prompt) for model in models])

    def _decode_rows(self, rows: Development, guides: Guides = ()) -> list[Result]:
        results = self.decode(rows, rows.prompts, guides)
        if failed := failures(results, rows.name):
            logger.warning("%s: %s", rows.name, failed)
        return results

    def decode(
        self,
        rows: Development,
        prompts: Sequence[Prompt],
        guides: Guides,
        *,
        with_rounds: bool = True,
    ) -> list[Result]:
        total = len(prompts)
        journal = self.kept.journal(prompts, guides) if self.kept else None
        with journal or nullcontext():
            results = self._known(journal)
            if results:
                logger.info(
                    "%s: %d of %d texts were decoded before", rows.name, len(results), total
                )
            left = [number for number in range(total) if number not in results]
            asked = [prompts[n] for n in left], guides and [guides[n] for n in left]
            stream = self.ensemble.while_served(self._stream(rows, *asked), "run again")
            for index, result in with_bar(stream, len(left), rows.progress):
                number = left[index]
                results[number] = result if with_rounds else replace(result, rounds=())
                if journal is not None and result.error is None:
                    journal.append(str(number), result_columns(results[number]))
                done = len(results)
                if 10 * done // total > 10 * (done - 1) // total:
                    logger.info("%s: %d of %d texts decoded", rows.name, done, total)
        return [results[number] for number in range(total)]

    def _known(self, journal: Journal | None) -> dict[int, Result]:
        """Return the texts that the journal has of these models, by number."""
        if journal is None:
            return {}
        journal.continue_with(self.ensemble.served_by, are_same)
        return {int(n): result_from({"id": n, **row}) for n, row in journal.rows.items()}

    def _stream(
        self, rows: Development, prompts: Sequence[Prompt], guides: Guides
    ) -> Iterator[tuple[int, Result]]:
        def start(*given: Any) -> Example:
            example = Guided(*given)
            if guides:
                example.guide = guides[example.index]
            return example

        settings = parse(Settings, rows.settings, rows.name)
        method, ensemble = resolve(self.method, self.options), self.ensemble
        run = Run(ensemble.models, ensemble.weights, ensemble.at, method, settings, start)
        return run.results(prompts)

    def _case(
        self, row: int, taken: Round, worth: Mapping[CandidateKey, float], best: CandidateKey
    ) -> RatedRound:
        active = [k for k, weight in enumerate(self.ensemble.weights) if weight > 0]
        pool = [
            Span(s.text, s.ends, margins={k: taken.margins[k] for k in s.proposers}, nll=s.nll)
            for s in _scored(taken.candidates)
        ]
        known = [s for s in pool if (s.text, s.ends) in worth]
        return RatedRound(
            row,
            [(s.text, s.ends) for s in known].index(best),
            np.array([model_features(pool, k) for k in range(len(self.ensemble.models))]),
            np.array([span_features(s, active) for s in known]),
            np.array([s.nll for s in known]),
            np.array([worth[s.text, s.ends] for s in known]),
        )


def _choice(taken: Round) -> CandidateKey:
    assert taken.selected is not None
    selected = taken.candidates[taken.selected]
    return selected.text, selected.ends


def _on_course(course: Sequence[CandidateKey], example: Example, pool: Pool) -> Span | None:
    number = len(example.rounds) - 1
    wanted = course[number] if number < len(course) else None
    return next((s for s in _scored(pool.candidates) if (s.text, s.ends) == wanted), None)


def _following(
    answers: Sequence[str], text: str, candidates: Sequence[Any], marks: Thoughts | None = None
) -> Any:
    """Return the first candidate with which `text` still begins an answer, by its words.

    An answer begins after thoughts; no candidate is one that only goes on with them.
    """
    for answer in answers:
        words = answer.split()
        for candidate in _scored(candidates):
            said = text + candidate.text
            written = said[marks.length(said) if marks else 0 :].split()
            rest = not candidate.text.strip() and written == words
            grows = candidate.text.split() and written and written == words[: len(written)]
            if (grows or rest) and (not candidate.ends or written == words):
                return candidate
    return None


def _scored(candidates: Sequence[Any]) -> list[Any]:
    """Return those that took part in the choice: all models that were asked give a finite NLL."""
    return [s for s in candidates if math.isfinite(s.fused)]


def _least_lost(result: Result) -> list[tuple[int, Any]]:
    """Return the candidates that lost by least, each with the number of its round."""
    lost = [
        (other.fused - taken.candidates[taken.selected].fused, number, place, other)
        for number, taken in enumerate(result.rounds)
        if taken.selected is not None
        for place, other in enumerate(taken.candidates)
        if place != taken.selected and math.isfinite(other.fused)
    ]
    kept = sorted(lost, key=lambda each: each[:3])[:MOST_CHOICES]
    return [(number, other) for _, number, _, other in sorted(kept, key=lambda each: each[1:3])]


def failures(results: Sequence[Result], rows: str) -> str:
    """Say how many texts ended in an error; refuse rows of which nothing was decoded."""
    errors = [result.error for result in results if result.error is not None]
    if not errors:
        return ""
    said = f"{len(errors)} of {len(results)} texts ended in an error, the first with: {errors[0]}"
    if len(errors) == len(results):
        raise UserError(f"{rows}: {said}; correct that first")
    return f"{said}; they count as wrong."


def _worth(
    rows: Development, owners: Sequence[int], results: Sequence[Result]
) -> tuple[list[float], float]:
    """Return the value of each text under the scorer as a share of the largest, and that in points.

    What ended with an error is an empty text, as it is where runs are scored.
    """
    chosen = scorer_named(rows.scorer, f"benchmark {rows.name!r}")
    texts = zip(owners, results, strict=True)
    examples = [
        scoring.Prediction(
            str(number),
            "" if result.stop_reason == "error" else result.answer,
            tuple(rows.answers[row]),
        )
        for number, (row, result) in enumerate(texts)
    ]
    values = [outcome.value for outcome in chosen.score(scoring.STRICT, examples).outcomes]
    unit = max(map(abs, values), default=0.0) or 1.0
    points = 100 * unit if chosen.primary.binary else unit
    return [chosen.primary.merit(value) / unit for value in values], points


OTHER_UNITS = {
    "reward": SHARES,
    "likelihood": "rounds that follow the reference, per 100 rows,",
}


def fit(
    ensemble: Ensemble,
    development: Sequence[Development],
    *,
    method: str = "adafuse",
    objective: Objective = "reward",
    kept: Kept | None = None,
    **options: Any,
) -> FittedGate:
    """Fit a gate for `fusion: learned` on development rows with answers.

    It is the paper's rule where nothing can be learned that helps rows that were held out.

    Args:
        ensemble: the models that the gate is for; their weights are where it starts from.
        development: rows, perhaps of several benchmarks, each of which counts the same.
        method: one that fuses words; `options` are its options.
        objective: "reward" tries what other choices come to, "likelihood" follows the references.
        kept: where finished texts stay, for another call with the same arguments.

    Raises:
        UserError: fewer than two models, a method without fusion rules, or a row without an answer.
    """
    _check(ensemble, development, method, objective, options)
    rows = sum(len(each.prompts) for each in development)
    cases, units = _all_cases(Fitter(ensemble, method, options, kept), development, objective)
    found = learned(cases, ensemble.weights, objective)
    names = [model.name for model in ensemble.models]
    one = len(units) == 1 and objective == "reward"
    scale = (units.pop() if one else 100) / rows
    return FittedGate(
        models=tuple(
            FittedModel(name=name, key=tuple(key))
            for name, key in zip(names, keys_now(names), strict=True)
        ),
        bias=tuple(found.bias),
        weights=dict(zip(MODEL_FEATURES, found.theta, strict=True)),
        span=dict(zip(SPAN_FEATURES, found.span, strict=True)),
        fitted=Provenance(
            objective=objective,
            method=method,
            options=dict(options),
            benchmarks=tuple(each.name for each in development),
            rows=rows,
            rounds=len(cases),
            penalty=found.penalty,
            unit="points" if one else OTHER_UNITS[objective],
            gain={str(each): scale * gain for each, gain in found.gain.items()},
            importance={name: scale * lost for name, lost in found.importance.items()},
            calibration=found.calibration,
            versions=versions(),
            prompts=prompt_hashes(
                text for each in development for row in each.forms for text in row
            ),
        ),
    )


def _all_cases(
    fitter: Fitter, development: Sequence[Development], objective: Objective
) -> tuple[list[RatedRound], set[float]]:
    """Return the rounds in which a choice mattered, and what a worth of 1 is in points."""
    cases, units, before = list[RatedRound](), set[float](), 0
    rows = sum(len(each.prompts) for each in development)
    for each in development:
        weight = rows / len(development) / len(each.prompts)
        rated, points = fitter.cases(each, objective)
        units.add(points)
        cases += [
            replace(case, row=before + case.row, weight=weight)
            for case in rated
            if case.worth.max() > case.worth.min()
        ]
        before += len(each.prompts)
    return cases, units


def _check(
    ensemble: Ensemble,
    development: Sequence[Development],
    method: str,
    objective: str,
    options: Mapping[str, Any],
) -> None:
    if objective not in ("reward", "likelihood"):
        raise UserError(f"unknown objective {objective!r}; use reward or likelihood")
    if len(ensemble.models) < 2:
        raise UserError("a gate weights several models, but only one was given; give two or more")
    replaced = resolve(method, options).options.replaced_by_gate
    given = [f"option {name}={options[name]!r}" for name in sorted(replaced) if name in options]
    if given or not replaced:
        odd = given[0] if given else f"method {method}"
        raise UserError(
            f"{odd} cannot be fitted, because a gate learns to choose between candidates; use"
            " adafuse, fixed_length or beam_scaling, without `fusion` and `disagreement`"
        )
    resolve(method, {**options, "fusion": LEARNED, "gate": DEVELOPMENT})  # as it will be used
    if not development or not all(rows.prompts for rows in development):
        raise UserError("there are no development rows to fit on; give some of each benchmark")
    for rows in development:
        scorer_named(rows.scorer, f"benchmark {rows.name!r}")
        for index, answers in enumerate(rows.answers):
            if not any(answer.strip() for answer in answers):
                raise UserError(f"{rows.name}: row {index} has no answer; give rows with answers")
