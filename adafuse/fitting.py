"""Fitting the gate of `fusion: learned` on development rows with answers, never on test rows.

What a choice is worth is found out by making it: a row is decoded once, and then once more for each
other candidate of its rounds, which is committed instead. The benchmark's own scorer says what came
of either. So the expected score of a gate that draws its choices is known, and with it the exact
policy gradient (objective `reward`). Objective `likelihood` is cheaper: it follows a reference
answer as long as some candidate does, and asks for that candidate.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from adafuse.decoding.candidates import Candidate, Pool
from adafuse.decoding.fusion import FusionOptions, PoolFusion
from adafuse.decoding.gate import (
    MODEL_FEATURES,
    SPAN_FEATURES,
    Fitted,
    FittedModel,
    Gate,
    model_features,
    span_features,
)
from adafuse.decoding.round import Example
from adafuse.decoding.run import Run, result_of
from adafuse.decoding.words import Settings
from adafuse.engine.scheduler import Finished
from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.methods import resolve
from adafuse.metrics import scorer as scoring
from adafuse.metrics.registry import scorer_named
from adafuse.models.files import model_key
from adafuse.options import parse
from adafuse.records import Prompt, Result, Round, question_of
from adafuse.version import versions

Objective = Literal["reward", "likelihood"]
PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Of the squared coefficients, in units of their features' standard deviations."""
FOLDS = 5
SHARPNESS = 4.0
"""A gate that is being fitted draws s with a probability in proportion to exp(-4 F(s))."""
MOST_CHOICES = 32
"""At most this many candidates of a row are tried, those that lost by least."""

Floats = NDArray[np.float64]
Choice = tuple[str, bool]
"""A candidate by its text, and whether END is in it."""


@dataclass(frozen=True)
class Development:
    """Rows to fit on; `scorer` is a name, `settings` are those of `Ensemble.stream`."""

    name: str
    prompts: Sequence[Prompt]
    answers: Sequence[Sequence[str]]
    scorer: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Case:
    """A round and what each of its candidates was worth.

    `models` has shape [K, features of a model], `spans` [C, features of a span], `nll` [C, K] in
    nats per token, `worth` [C] from 0 to 1; `taken` is what the paper's rule takes, `row` the
    number of the row among all, `weight` what it counts.
    """

    row: int
    taken: int
    models: Floats
    spans: Floats
    nll: Floats
    worth: Floats
    weight: float = 1.0


@dataclass(eq=False)
class Guided(Example):
    """An example in which `guide` names what is committed, as long as it knows a candidate."""

    guide: Callable[[Example, Pool], Candidate | None] = field(default=lambda *_: None)

    def select(self, pool: Pool, fuse: PoolFusion) -> Candidate:
        best, guided = super().select(pool, fuse), self.guide(self, pool)
        if guided is None:
            return best
        words = len(guided.text.split())
        place = pool.candidates.index(guided)
        self.rounds[-1] = replace(self.rounds[-1], selected=place, words=words)
        return guided


@dataclass(frozen=True)
class Fitter:
    """Decodes development rows with the method that the gate is for, and finds out its cases."""

    ensemble: Ensemble
    method: str
    options: Mapping[str, Any]

    def cases(self, rows: Development, objective: Objective) -> list[Case]:
        """Return the rounds from which a choice can be learned."""
        if objective == "likelihood":
            return list(self._followed(rows))
        base = self._decode(rows, rows.prompts)
        choices = [
            (index, number, (other.text, other.ends))
            for index, result in enumerate(base)
            for number, other in _least_lost(result)
        ]
        courses = [[*_course(base[row], number), choice] for row, number, choice in choices]
        prompts = [rows.prompts[row] for row, _, _ in choices]
        tried = self._decode(rows, prompts, [partial(_on_course, course) for course in courses])
        owners = [*range(len(base)), *(row for row, _, _ in choices)]
        worth = _worth(rows, owners, [*base, *tried])
        found: dict[tuple[int, int], dict[Choice, float]] = defaultdict(dict)
        for (row, number, choice), value in zip(choices, worth[len(base) :], strict=True):
            found[row, number][choice] = value
        return [
            self._case(row, base[row].rounds[number], {**values, taken: worth[row]}, taken)
            for (row, number), values in found.items()
            for taken in [_choice(base[row].rounds[number])]
        ]

    def _followed(self, rows: Development) -> Iterator[Case]:
        guides = [partial(_after_reference, answers) for answers in rows.answers]
        for row, result in enumerate(self._decode(rows, rows.prompts, guides)):
            text = ""
            for taken in result.rounds:
                scored = _scored(taken.candidates)
                right = _following(text, scored, rows.answers[row])
                if right is None:
                    break
                text += right.text
                values = {(s.text, s.ends): float(s is right) for s in scored}
                if len(values) > 1:
                    best = min(scored, key=lambda s: s.fused)
                    yield self._case(row, taken, values, (best.text, best.ends))

    def _decode(
        self,
        rows: Development,
        prompts: Sequence[Prompt],
        guides: Sequence[Callable[[Example, Pool], Candidate | None]] = (),
    ) -> list[Result]:
        settings = parse(Settings, rows.settings, rows.name)
        method, models = resolve(self.method, self.options), self.ensemble.models

        def start(*given: Any) -> Example:
            example = Guided(*given)
            if guides:
                example.guide = guides[example.index]
            return example

        run = Run(models, self.ensemble.weights, self.ensemble.at, method, settings, start)
        questions = list(map(question_of, prompts))
        ended = {
            event.example.index: result_of(event)
            for event in run.events(prompts, questions)
            if isinstance(event, Finished)
        }
        return [ended[index] for index in range(len(prompts))]

    def _case(self, row: int, taken: Round, worth: Mapping[Choice, float], best: Choice) -> Case:
        asked = [k for k, weight in enumerate(self.ensemble.weights) if weight > 0]
        pool = [
            Candidate(s.text, s.ends, margins={k: taken.margins[k] for k in s.proposers}, nll=s.nll)
            for s in _scored(taken.candidates)
        ]
        known = [s for s in pool if (s.text, s.ends) in worth]
        return Case(
            row,
            [(s.text, s.ends) for s in known].index(best),
            np.array([model_features(pool, k) for k in range(len(self.ensemble.models))]),
            np.array([span_features(s, asked) for s in known]),
            np.array([s.nll for s in known]),
            np.array([worth[s.text, s.ends] for s in known]),
        )


def _choice(taken: Round) -> Choice:
    assert taken.selected is not None
    selected = taken.candidates[taken.selected]
    return selected.text, selected.ends


def _course(result: Result, number: int) -> list[Choice]:
    return [_choice(taken) for taken in result.rounds[:number]]


def _on_course(course: Sequence[Choice], example: Example, pool: Pool) -> Candidate | None:
    number = len(example.rounds) - 1
    wanted = course[number] if number < len(course) else None
    return next((s for s in _scored(pool.candidates) if (s.text, s.ends) == wanted), None)


def _following(text: str, candidates: Sequence[Any], answers: Sequence[str]) -> Any:
    """Return the first candidate with which `text` still begins an answer, by its words."""
    for answer in answers:
        words = answer.split()
        for candidate in candidates:
            written = (text + candidate.text).split()
            rest = not candidate.text.strip() and written == words
            grows = len(candidate.text.split()) > 0 and written == words[: len(written)]
            if (grows or rest) and (not candidate.ends or written == words):
                return candidate
    return None


def _after_reference(answers: Sequence[str], example: Example, pool: Pool) -> Candidate | None:
    found: Candidate | None = _following(example.text, _scored(pool.candidates), answers)
    return found


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


def _worth(rows: Development, owners: Sequence[int], results: Sequence[Result]) -> list[float]:
    """Return the value of each text under the benchmark's scorer, as a share of the largest.

    What ended with an error is an empty text, as it is where runs are scored.
    """
    chosen = scorer_named(rows.scorer, f"benchmark {rows.name!r}")
    texts = zip(owners, results, strict=True)
    examples = [
        scoring.Example(
            str(number),
            "" if result.stop_reason == "error" else result.text,
            tuple(rows.answers[row]),
        )
        for number, (row, result) in enumerate(texts)
    ]
    values = [outcome.value for outcome in chosen.score(scoring.STRICT, examples).outcomes]
    sign = 1.0 if chosen.primary.higher_is_better else -1.0
    unit = max(map(abs, values), default=0.0) or 1.0
    return [sign * value / unit for value in values]


@dataclass(frozen=True)
class Problem:
    """Cases as tensors, padded to the largest pool; features in standard deviations."""

    models: torch.Tensor
    spans: torch.Tensor
    nll: torch.Tensor
    there: torch.Tensor
    worth: torch.Tensor
    weight: torch.Tensor
    taken: torch.Tensor
    prior: torch.Tensor

    @classmethod
    def of(cls, cases: Sequence[Case], prior: Sequence[float], scale: "Scale") -> "Problem":
        size = max(len(case.worth) for case in cases)

        def padded(rows: Iterator[Floats]) -> torch.Tensor:
            full = [np.pad(r, [(0, size - len(r)), *[(0, 0)] * (r.ndim - 1)]) for r in rows]
            return torch.tensor(np.stack(full))

        return cls(
            torch.tensor(np.stack([case.models / scale.models for case in cases])),
            padded(case.spans / scale.spans for case in cases),
            padded(case.nll for case in cases),
            padded(np.ones(len(case.worth)) for case in cases) > 0,
            padded(case.worth for case in cases),
            torch.tensor([case.weight for case in cases]),
            torch.tensor([case.taken for case in cases]),
            torch.tensor(prior, dtype=torch.float64).log(),
        )

    def fused(self, bias: torch.Tensor, theta: torch.Tensor, span: torch.Tensor) -> torch.Tensor:
        """Return F(s), shape [cases, C]."""
        weights = torch.softmax(self.prior + bias + self.models @ theta, dim=1)
        scores = (self.nll * weights[:, None]).sum(dim=2) + self.spans @ span
        return scores.masked_fill(~self.there, torch.inf)

    def loss(self, objective: Objective, *parameters: torch.Tensor) -> torch.Tensor:
        """Return minus the expected worth, or minus the log-likelihood of what is right."""
        drawn = torch.log_softmax(-SHARPNESS * self.fused(*parameters), dim=1)
        if objective == "likelihood":
            per_case = -(drawn.masked_fill(~self.there, 0.0) * self.worth).sum(dim=1)
        else:
            per_case = -(drawn.exp() * self.worth).sum(dim=1)
        return (per_case * self.weight).sum()

    def gains(self, *parameters: torch.Tensor) -> torch.Tensor:
        """Return per case what taking the smallest F(s) adds to the worth of what was taken."""
        places = torch.stack([self.fused(*parameters).argmin(dim=1), self.taken], dim=1)
        new, old = self.worth.gather(1, places).unbind(dim=1)
        return (new - old) * self.weight


@dataclass(frozen=True)
class Scale:
    """Standard deviations of the features over all cases."""

    models: Floats
    spans: Floats

    @classmethod
    def of(cls, cases: Sequence[Case]) -> "Scale":
        models = np.concatenate([case.models for case in cases]).std(axis=0)
        spans = np.concatenate([case.spans for case in cases]).std(axis=0)
        return cls(*(np.where(found > 1e-9, found, 1.0) for found in (models, spans)))


Parameters = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def optimised(problem: Problem, objective: Objective, penalty: float) -> Parameters:
    """Return bias, theta and c of the smallest loss; the penalty draws them to `mean_nll`."""
    sizes = problem.prior.numel(), problem.models.shape[2], problem.spans.shape[2]
    parameters = [torch.zeros(size, dtype=torch.float64, requires_grad=True) for size in sizes]
    optimiser = torch.optim.LBFGS(parameters, max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        squares = sum((parameter**2).sum() for parameter in parameters)
        loss = problem.loss(objective, *parameters) + penalty * squares
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    bias, theta, span = (parameter.detach() for parameter in parameters)
    return bias, theta, span


def cross_validated(
    cases: Sequence[Case], prior: Sequence[float], scale: Scale, objective: Objective
) -> dict[float, float]:
    """Return by penalty what a gate adds to the worth of rows that it was not fitted on."""
    gains = dict.fromkeys(PENALTIES, 0.0)
    for fold in range(FOLDS):
        held = [case for case in cases if case.row % FOLDS == fold]
        rest = [case for case in cases if case.row % FOLDS != fold]
        if held and rest:
            fitted, tested = (Problem.of(part, prior, scale) for part in (rest, held))
            for penalty in PENALTIES:
                gate = optimised(fitted, objective, penalty)
                gains[penalty] += float(tested.gains(*gate).sum())
    return gains


def fit(
    ensemble: Ensemble,
    development: Sequence[Development],
    *,
    method: str = "adafuse",
    objective: Objective = "reward",
    **options: Any,
) -> Gate:
    """Fit a gate for `fusion: learned` on development rows with answers.

    It is the paper's rule where nothing can be learned that helps rows that were held out.

    Args:
        ensemble: the models that the gate is for; their weights are where it starts from.
        development: rows, perhaps of several benchmarks, each of which counts the same.
        method: one that fuses words; `options` are its options.
        objective: "reward" tries what other choices come to, "likelihood" follows the references.

    Raises:
        UserError: fewer than two models, a method without fusion rules, or a row without an answer.
    """
    _check(ensemble, development, method, objective, options)
    rows, fitter = sum(len(each.prompts) for each in development), Fitter(ensemble, method, options)
    cases: list[Case] = []
    before = 0
    for each in development:
        weight = rows / len(development) / len(each.prompts)
        cases += [
            replace(case, row=before + case.row, weight=weight)
            for case in fitter.cases(each, objective)
            if case.worth.max() > case.worth.min()
        ]
        before += len(each.prompts)
    penalty, gains, (bias, theta, span) = _chosen(cases, ensemble.weights, objective)
    names = [model.name for model in ensemble.models]
    return Gate(
        models=tuple(FittedModel(name=n, key=tuple(model_key(n, None))) for n in names),
        bias=tuple(bias),
        weights=dict(zip(MODEL_FEATURES, theta, strict=True)),
        span=dict(zip(SPAN_FEATURES, span, strict=True)),
        fitted=Fitted(
            objective=objective,
            method=method,
            options=dict(options),
            benchmarks=tuple(each.name for each in development),
            rows=rows,
            rounds=len(cases),
            penalty=penalty,
            gain={str(each): 100 * gain / rows for each, gain in gains.items()},
            versions=versions(),
        ),
    )


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
        raise UserError("a gate weighs models against one another, and there is one; give two")
    chosen = resolve(method, options)
    if not isinstance(chosen.options, FusionOptions) or "fusion" in options:
        odd = f"option fusion={options['fusion']!r}" if "fusion" in options else f"method {method}"
        raise UserError(
            f"{odd} cannot be fitted: a gate takes the place of the fusion rule; use adafuse,"
            " fixed_length or beam_scaling, without `fusion`"
        )
    if not development or not all(rows.prompts for rows in development):
        raise UserError("there are no development rows to fit on; give some of each benchmark")
    for rows in development:
        scorer_named(rows.scorer, f"benchmark {rows.name!r}")
        for index, answers in enumerate(rows.answers):
            if not any(answer.strip() for answer in answers):
                raise UserError(f"{rows.name}: row {index} has no answer; give rows with answers")


def _chosen(
    cases: Sequence[Case], prior: Sequence[float], objective: Objective
) -> tuple[float | None, dict[float, float], tuple[list[float], list[float], list[float]]]:
    """Return the penalty that gains most on rows held out, all gains, and the coefficients."""
    nothing = [0.0] * len(prior), [0.0] * len(MODEL_FEATURES), [0.0] * len(SPAN_FEATURES)
    if not cases:
        return None, {}, nothing
    scale = Scale.of(cases)
    gains = cross_validated(cases, prior, scale, objective)
    penalty = max(reversed(PENALTIES), key=gains.__getitem__)
    if gains[penalty] <= 0:
        return None, gains, nothing
    bias, theta, span = optimised(Problem.of(cases, prior, scale), objective, penalty)
    own = (theta.numpy() / scale.models).tolist(), (span.numpy() / scale.spans).tolist()
    return penalty, gains, (bias.tolist(), *own)
