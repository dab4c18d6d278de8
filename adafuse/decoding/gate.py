"""`fusion: learned`: F(s) by a gate that `adafuse fit` made from development rows.

    F(s) = sum_k w_k(x) NLL_k(s) + sum_j c_j phi_j(s),    w_k(x) = w_k exp(b_k + theta f_k(x)) / Z

The f_k are features of model k in this round, the phi_j of the span, and with b, theta and c of 0
this is `mean_nll` (eq. 5). A policy over the models' weights, as in RLAE (arXiv 2506.00439), but of
a dozen numbers, and read from what every round has anyway.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ValidationError

from adafuse.decoding.candidates import Candidate
from adafuse.errors import UserError, unknown
from adafuse.models.files import keys_now
from adafuse.options import Section, Text, refusing, sentence
from adafuse.storage.files import read_text, write_text

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


def model_features(pool: Sequence[Candidate], number: int) -> tuple[float, ...]:
    """Return f_k of model `number`, in the order of `MODEL_FEATURES`."""
    own = [s.nll[number] for s in pool if number in s.margins]
    others = [s.nll[number] for s in pool if number not in s.margins]
    margins = next((s.margins[number] for s in pool if number in s.margins), ())
    best = min(own or others)
    return (*_margins(margins), _bounded(best), _bounded(min(others, default=best)))


def span_features(span: Candidate, asked: Sequence[int]) -> tuple[float, ...]:
    """Return phi of a span, in the order of `SPAN_FEATURES`."""
    lowest = _bounded(min(span.nll[k] for k in asked))
    read = [_margins(margins) for k, margins in span.margins.items() if k in asked] or [(0.0, 0.0)]
    first, least = (math.fsum(column) / len(read) for column in zip(*read, strict=True))
    return lowest, float(span.length), float(span.ends), first, least


class Bin(Section):
    """Rounds in which the gate's choice has about the same probability.

    `chance` is the mean of that, `right` the share of the rounds in which no other candidate was
    worth more.
    """

    chance: float
    right: float
    rounds: int


class Fitted(Section):
    """Where a gate comes from, and what it does for rows that it was not fitted on.

    `gain` is what it adds to their scores, in points, by the penalty on its coefficients;
    `importance` what of that is lost without each feature; `calibration` has its bins, and those of
    `mean_nll`.
    """

    objective: Literal["reward", "likelihood"]
    method: str
    options: dict[str, Any]
    benchmarks: tuple[str, ...]
    rows: int
    rounds: int
    penalty: float | None
    gain: dict[str, float]
    importance: dict[str, float]
    calibration: dict[str, tuple[Bin, ...]]
    versions: dict[str, Any]


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


@dataclass(frozen=True, slots=True)
class LearnedRule:
    """The rule F(s) for the models of one ensemble; `bias` has one number per model."""

    bias: Sequence[float]
    theta: Sequence[float]
    span: Sequence[float]

    def __call__(
        self, pool: Sequence[Candidate], weights: Sequence[float]
    ) -> tuple[list[float], Sequence[float]]:
        asked = [k for k, weight in enumerate(weights) if weight > 0]
        logits = {
            k: math.log(weights[k]) + self.bias[k] + _dot(self.theta, model_features(pool, k))
            for k in asked
        }
        largest = max(logits.values())
        shares = {k: math.exp(logit - largest) for k, logit in logits.items()}
        total = math.fsum(shares.values())
        used = [shares.get(k, 0.0) / total for k in range(len(weights))]
        scores = [
            math.fsum(used[k] * span.nll[k] for k in asked)
            + _dot(self.span, span_features(span, asked))
            for span in pool
        ]
        return scores, used


def _dot(coefficients: Sequence[float], values: Sequence[float]) -> float:
    return math.fsum(c * value for c, value in zip(coefficients, values, strict=True))


class Gate(Section):
    """A fitted rule with its provenance; coefficients that are not there are 0."""

    format: Literal["adafuse-gate-1"] = "adafuse-gate-1"
    models: tuple[FittedModel, ...]
    bias: tuple[float, ...]
    weights: Annotated[dict[str, float], _numbers(MODEL_FEATURES)]
    span: Annotated[dict[str, float], _numbers(SPAN_FEATURES)]
    fitted: Fitted

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


def read_gate(path: str) -> Gate:
    """Read a gate.

    Raises:
        UserError: no file, or not one of `adafuse fit`.
    """
    text = read_text(Path(path), "gate")
    try:
        return Gate.model_validate_json(text)
    except ValidationError as error:
        reason = sentence(error.errors()[0], f"gate {path!r}")
        raise UserError(f"{reason}; give a file that `adafuse fit` wrote") from None


def write_gate(path: Path, gate: Gate) -> None:
    """Write a gate as JSON."""
    write_text(path, json.dumps(gate.model_dump(mode="json"), indent=2) + "\n")
