"""Certifies by development rows that fusing is not worse than the best model."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from adafuse.development.advice import scored
from adafuse.development.gate_file import check_unseen
from adafuse.development.gate_fitting import Development, Kept, failures
from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.methods import resolve
from adafuse.metrics.certificate import Certificate, Order, certify
from adafuse.metrics.compare import MARGIN
from adafuse.metrics.noninferior import LEVEL
from adafuse.storage.journal import digest_of

Candidates = Mapping[str, tuple[str, Mapping[str, Any]]]
"""Methods with their options, by names to show."""


def certify_methods(
    ensemble: Ensemble,
    rows: Development,
    candidates: Candidates,
    *,
    order: Order = "sequence",
    alpha: float = LEVEL,
    margin: float = MARGIN,
    kept: Kept | None = None,
) -> tuple[Certificate, list[str]]:
    """Decode development rows with each model and each candidate, and choose by their scores.

    With order `preference` and `half` the models are candidates, too. The members of the
    certificate are the models' names. Beside it is a sentence on each run of which rows failed.
    Texts that an earlier such call has `kept` are not decoded again; new ones are added to them.

    Raises:
        UserError: fewer than two models, the same model twice, no rows, a candidate's gate that
            was fitted on some of these rows, or a server that failed.
    """
    members = [model.name for model in ensemble.models]
    if len(set(members)) < len(members):
        raise UserError(f"model {members[0]!r} is among {members} twice; give different models")
    if taken := candidates.keys() & members:
        raise UserError(f"candidate {min(taken)!r} has the name of a model; name it otherwise")
    if not rows.prompts:
        raise UserError("there are no development rows; give some with answers")
    for name, (method, options) in candidates.items():
        if (gate := resolve(method, options).files.get("gate")) is not None:
            check_unseen(gate, rows.name, rows.forms, name, "certify")
    runs: Candidates = {name: ("single", {}) for name in members} | dict(candidates)
    scores, failed = [], []
    for name, (method, options) in runs.items():
        part = ensemble
        if name in members:
            part = Ensemble([ensemble.models[members.index(name)]])
        own = kept and replace(kept, same=digest_of(kept.same, name))
        found = rows.decoded_by(part, method, options, own)
        scores.append(scored(rows, name, found))
        if said := failures(found, rows.name):
            failed.append(f"{name}: {said}")
    singles = [] if order == "sequence" else members
    certificate = certify(
        [*candidates, *singles], members, scores, order=order, alpha=alpha, margin=margin
    )
    return certificate, failed
