"""Uses a gate: F(s) of `fusion: learned`. `adafuse.development.gate_fitting` fits it.

    F(s) = sum_k w_k(x) NLL_k(s) + sum_j c_j phi_j(s),    w_k(x) = w_k exp(b_k + theta f_k(x)) / Z

The f_k are features of model k in this round, the phi_j of the span, and with b, theta and c of 0
this is `mean_nll` (eq. 5). A policy over the models' weights, as in RLAE (arXiv 2506.00439), but of
a dozen numbers, and read from what every round has anyway.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, FiniteFloat, ValidationError, model_validator

from adafuse.decoding.candidates import Span
from adafuse.errors import UserError, unknown
from adafuse.models.files import keys_now
from adafuse.options import Section, Text, refusing, sentence
from adafuse.storage.files import read_text

if TYPE_CHECKING:
    import torch

MODEL_FEATURES = ("margin", "least_margin", "own_nll", "others_nll")
"""Of a model: the margin of the first word that it proposed, the smallest of all its words, the
lowest NLL that it gives to a span of its own, and to one of the others."""
SPAN_FEATURES = ("lowest_nll", "words", "ends", "margin", "least_margin")
"""Of a span: the lowest NLL of any model, its words (and END), whether END is in it, and the two
margins on average over the models that wrote it."""
DEVELOPMENT = "development"
"""The `gate` of a run of the workflow that is fitted on each benchmark's development rows."""
LARGEST_NLL = 10.0
"""A feature that is an NLL, in nats per token, is at most this."""


def _bounded(nll: float) -> float:
    return min(nll, LARGEST_NLL)


def _margins(margins: Sequence[float]) -> tuple[float, float]:
    """Return the first and the smallest margin; 0 where none was read, or it is NaN."""
    read = [margin if margin == margin else 0.0 for margin in margins] or [0.0]
    return read[0], min(read)


def model_features(pool: Sequence[Span], number: int) -> tuple[float, ...]:
    """Return f_k of model `number`, in the order of `MODEL_FEATURES`."""
    own = [s.nll[number] for s in pool if number in s.margins]
    others = [s.nll[number] for s in pool if number not in s.margins]
    margins = next((s.margins[number] for s in pool if number in s.margins), ())
    best = min(own or others)
    return (*_margins(margins), _bounded(best), _bounded(min(others, default=best)))


def span_features(span: Span, active: Sequence[int]) -> tuple[float, ...]:
    """Return phi of a span, in the order of `SPAN_FEATURES`."""
    lowest = _bounded(min(span.nll[k] for k in active))
    read = [_margins(margins) for k, margins in span.margins.items() if k in active] or [(0.0, 0.0)]
    first, least = (math.fsum(column) / len(read) for column in zip(*read, strict=True))
    return lowest, float(span.length), float(span.ends), first, least


def _numbers(known: Sequence[str]) -> Any:
    def check(values: dict[str, float]) -> dict[str, float]:
        for name, value in values.items():
            if name not in known:
                with refusing():
                    raise UserError(unknown("feature", name, list(known)))
            if not math.isfinite(value):
                raise ValueError(f"{name} is {value}, which is not a number; fit the gate again")
        return values

    return AfterValidator(check)


class FittedModel(Section):
    """A model by its name, and by what makes two models the same (`model_key`)."""

    name: Text
    key: tuple[str | None, ...]


Parameters = tuple["torch.Tensor", "torch.Tensor", "torch.Tensor"]
"""b, of shape [models], theta and c, each with one number per feature."""


def fused_scores(
    parameters: Parameters,
    logs: "torch.Tensor",
    models: "torch.Tensor",
    spans: "torch.Tensor",
    nll: "torch.Tensor",
) -> tuple["torch.Tensor", "torch.Tensor"]:
    """Return F(s) and w_k(x), of shapes [..., candidates] and [..., models].

    Args:
        parameters: b, theta and c.
        logs: log w_k, shape [models].
        models: the f_k, shape [..., models, features].
        spans: the phi_j, shape [..., candidates, features].
        nll: in nats per token, shape [..., candidates, models].
    """
    bias, theta, span = parameters
    weights = (logs + bias + models @ theta).softmax(dim=-1)
    return (nll * weights[..., None, :]).sum(dim=-1) + spans @ span, weights


@dataclass(frozen=True, slots=True)
class LearnedRule:
    """The rule F(s) for the models of one ensemble; `bias` has one number per model."""

    bias: Sequence[float]
    theta: Sequence[float]
    span: Sequence[float]

    def __call__(
        self, pool: Sequence[Span], weights: Sequence[float]
    ) -> tuple[list[float], Sequence[float]]:
        import torch

        tensor = partial(torch.tensor, dtype=torch.float64)
        voters = [k for k, weight in enumerate(weights) if weight > 0]
        scores, shares = fused_scores(
            (tensor([self.bias[k] for k in voters]), tensor(self.theta), tensor(self.span)),
            tensor([weights[k] for k in voters]).log(),
            tensor([model_features(pool, k) for k in voters]),
            tensor([span_features(candidate, voters) for candidate in pool]),
            tensor([[candidate.nll[k] for k in voters] for candidate in pool]),
        )
        by_model = dict(zip(voters, shares.tolist(), strict=True))
        return scores.tolist(), [by_model.get(k, 0.0) for k in range(len(weights))]


class Gate(Section):
    """A fitted rule; coefficients that are not there are 0.

    `fitted` says where it comes from (`adafuse.development.gate_file`); decoding does not read it.
    """

    format: Literal["adafuse-gate-1"] = "adafuse-gate-1"
    models: tuple[FittedModel, ...]
    bias: tuple[FiniteFloat, ...]
    weights: Annotated[dict[str, float], _numbers(MODEL_FEATURES)]
    span: Annotated[dict[str, float], _numbers(SPAN_FEATURES)]
    fitted: Any = None

    @model_validator(mode="after")
    def _models_have_a_bias_each(self) -> Self:
        if len(self.bias) != len(self.models):
            raise ValueError(
                f"bias has {len(self.bias)} numbers, but there are {len(self.models)} models"
            )
        return self

    def rule(self, models: Sequence[str], source: str) -> LearnedRule:
        """Return the rule for models by their paths, in any order.

        Raises:
            UserError: they are not those that the gate was fitted on.
        """
        known = [list(model.key) for model in self.models]
        keys = keys_now(models)
        if sorted(map(str, keys)) != sorted(map(str, known)):
            names = " and ".join(model.name for model in self.models)
            raise UserError(
                f"gate {source!r} was fitted on {names}, not on {' and '.join(models)}; fit one on"
                " these models (`adafuse fit`)"
            )
        bias = [self.bias[known.index(key)] for key in keys]
        theta = [self.weights.get(name, 0.0) for name in MODEL_FEATURES]
        return LearnedRule(bias, theta, [self.span.get(name, 0.0) for name in SPAN_FEATURES])


GateT = TypeVar("GateT", bound=Gate)


def read_gate(path: str, kind: type[GateT] = Gate) -> GateT:  # type: ignore[assignment]
    """Read a gate.

    Raises:
        UserError: no file, or not one of `adafuse fit`.
    """
    text = read_text(Path(path), "gate")
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        reason = sentence(error.errors()[0], f"gate {path!r}")
        raise UserError(f"{reason}; give a file that `adafuse fit` wrote") from None
