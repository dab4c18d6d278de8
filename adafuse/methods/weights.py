"""Weights w_k of the models in a fusion rule."""

import math
from collections.abc import Sequence

from adafuse.errors import UserError


def check_weights(weights: Sequence[float] | None, count: int) -> tuple[float, ...]:
    """Return w_k, one per model; all 1 by default.

    Raises:
        UserError: a wrong number of weights, a negative one, or none above 0.
    """
    values = (1.0,) * count if weights is None else tuple(float(weight) for weight in weights)
    if len(values) != count:
        raise UserError(f"{len(values)} weights for {count} models; give one per model")
    if not all(math.isfinite(value) and value >= 0 for value in values) or not any(values):
        raise UserError(f"weights {list(values)} must be at least 0, one of them above")
    return values
