"""The coefficients of a gate, from rounds whose choices have a worth, and how far to trust it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from adafuse.decoding.gate import MODEL_FEATURES, SPAN_FEATURES, Parameters, fused_scores
from adafuse.development.gate_file import Bin

Objective = Literal["reward", "likelihood"]
PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Of the squared coefficients, in units of their features' standard deviations."""
FOLDS = 5
SHARPNESS = 4.0
"""A gate that is being fitted draws s with a probability in proportion to exp(-4 F(s))."""
BINS = 5

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RatedRound:
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
    def of(cls, cases: Sequence[RatedRound], prior: Sequence[float], scale: "Scale") -> "Problem":
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

    @property
    def nothing(self) -> Parameters:
        """The parameters with which a gate is the paper's rule."""
        sizes = self.prior.numel(), self.models.shape[2], self.spans.shape[2]
        bias, theta, span = (torch.zeros(size, dtype=torch.float64) for size in sizes)
        return bias, theta, span

    def fused(self, bias: torch.Tensor, theta: torch.Tensor, span: torch.Tensor) -> torch.Tensor:
        """Return F(s), shape [cases, C]."""
        features = self.models, self.spans, self.nll
        scores, _ = fused_scores((bias, theta, span), self.prior, *features)
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
    def of(cls, cases: Sequence[RatedRound]) -> "Scale":
        models = np.concatenate([case.models for case in cases]).std(axis=0)
        spans = np.concatenate([case.spans for case in cases]).std(axis=0)
        return cls(*(np.where(found > 1e-9, found, 1.0) for found in (models, spans)))


def optimised(problem: Problem, objective: Objective, penalty: float) -> Parameters:
    """Return bias, theta and c of the smallest loss; the penalty draws them to `mean_nll`."""
    parameters = [each.requires_grad_() for each in problem.nothing]
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


@dataclass(frozen=True)
class CrossValidation:
    """For each penalty and fold of rows a gate that was fitted on the other folds.

    `held` has the rows of each fold.
    """

    held: Sequence[Problem]
    gates: dict[float, list[Parameters]]

    @classmethod
    def of(
        cls, cases: Sequence[RatedRound], prior: Sequence[float], scale: Scale, objective: Objective
    ) -> "CrossValidation":
        """Fit all gates; a fold without cases, or with all of them, is left out."""
        held: list[Problem] = []
        gates: dict[float, list[Parameters]] = {penalty: [] for penalty in PENALTIES}
        for fold in range(FOLDS):
            parts = [[c for c in cases if (c.row % FOLDS == fold) == own] for own in (False, True)]
            if all(parts):
                fitted, tested = (Problem.of(part, prior, scale) for part in parts)
                held.append(tested)
                for penalty, found in gates.items():
                    found.append(optimised(fitted, objective, penalty))
        return cls(held, gates)

    def gain(self, gates: Sequence[Parameters]) -> float:
        """Return what gates, one per fold, add to the worth of the rows that are held out."""
        pairs = zip(self.held, gates, strict=True)
        return sum(float(problem.gains(*gate).sum()) for problem, gate in pairs)

    def importance(self, gates: Sequence[Parameters]) -> dict[str, float]:
        """Return how much of their gain is lost without each feature, whose coefficient is then 0.

        The same comes of a feature that is the same for all models, or for all spans of a round.
        """
        places: dict[str, tuple[int, int | slice]] = {
            "bias": (0, slice(None)),
            **{f"weights.{name}": (1, place) for place, name in enumerate(MODEL_FEATURES)},
            **{f"span.{name}": (2, place) for place, name in enumerate(SPAN_FEATURES)},
        }
        return {
            name: self.gain(gates) - self.gain([_without(gate, *place) for gate in gates])
            for name, place in places.items()
        }

    def calibration(self, gates: Sequence[Parameters]) -> tuple[Bin, ...]:
        """Return in bins of equal size how often their likeliest candidate is a best one."""
        found: list[tuple[float, float]] = []
        for problem, gate in zip(self.held, gates, strict=True):
            drawn = torch.softmax(-SHARPNESS * problem.fused(*gate), dim=1).max(dim=1)
            worth = problem.worth.masked_fill(~problem.there, -torch.inf)
            right = worth.gather(1, drawn.indices[:, None])[:, 0] == worth.max(dim=1).values
            found += zip(drawn.values.tolist(), right.double().tolist(), strict=True)
        bins = np.array_split(np.array(sorted(found)).reshape(-1, 2), BINS)
        means = [(each.mean(axis=0).tolist(), len(each)) for each in bins if len(each)]
        return tuple(Bin(chance=chance, right=right, rounds=n) for (chance, right), n in means)


def _without(gate: Parameters, part: int, place: int | slice) -> Parameters:
    bias, theta, span = (each.clone() for each in gate)
    (bias, theta, span)[part][place] = 0.0
    return bias, theta, span


@dataclass(frozen=True)
class Learned:
    """The coefficients of a gate, and what cross-validation says of it.

    Without a penalty it is the paper's rule: nothing that was learned helped rows held out. `gain`
    and `importance` are in the unit of worth, summed over the rows.
    """

    bias: list[float]
    theta: list[float]
    span: list[float]
    penalty: float | None = None
    gain: dict[float, float] = field(default_factory=dict)
    importance: dict[str, float] = field(default_factory=dict)
    calibration: dict[str, tuple[Bin, ...]] = field(default_factory=dict)


def learned(cases: Sequence[RatedRound], prior: Sequence[float], objective: Objective) -> Learned:
    """Fit a gate with the penalty that gains most on rows held out."""
    rule = Learned([0.0] * len(prior), [0.0] * len(MODEL_FEATURES), [0.0] * len(SPAN_FEATURES))
    if not cases:
        return rule
    scale = Scale.of(cases)
    tried = CrossValidation.of(cases, prior, scale, objective)
    gain = {penalty: tried.gain(gates) for penalty, gates in tried.gates.items()}
    penalty = max(reversed(PENALTIES), key=gain.__getitem__)
    calibration = {"mean_nll": tried.calibration([problem.nothing for problem in tried.held])}
    if gain[penalty] <= 0:
        return replace(rule, gain=gain, calibration=calibration)
    bias, theta, span = optimised(Problem.of(cases, prior, scale), objective, penalty)
    return Learned(
        bias.tolist(),
        (theta.numpy() / scale.models).tolist(),
        (span.numpy() / scale.spans).tolist(),
        penalty,
        gain,
        tried.importance(tried.gates[penalty]),
        calibration | {"learned": tried.calibration(tried.gates[penalty])},
    )
