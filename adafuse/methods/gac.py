"""`gac`: averaging over the union of whole vocabularies (GaC, arXiv 2406.12585)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from adafuse.decoding.method import Method
from adafuse.decoding.round import Example
from adafuse.decoding.token_round import (
    TRACED,
    Choice,
    Entry,
    PendingText,
    distributions,
    fuse_tokens,
)
from adafuse.decoding.token_round import entry_of as entry
from adafuse.engine.node import Program
from adafuse.options import MethodOptions, ModelNumber, doc
from adafuse.tokenization.token_bytes import TokenKeys, written

if TYPE_CHECKING:
    import torch

    from adafuse.engine.node import NextToken
    from adafuse.methods.joint_vocabulary import JointVocabulary
    from adafuse.models.language_model import LanguageModel
    from adafuse.models.placement import Place


class GacOptions(MethodOptions):
    """At which tokens the models are asked together."""

    threshold: Annotated[
        Annotated[float, Field(ge=0, le=1)] | None,
        doc(
            "ask the other models only where the likeliest token of model `gate` has at most this"
            " probability; null: at every token"
        ),
    ] = None
    gate: Annotated[ModelNumber, doc("number of the model that `threshold` looks at")] = 0


class Gac(Method[GacOptions]):
    """Averages the probabilities of all tokens, matched by their bytes, with weights w_k, and takes
    the likeliest; all ends of all models are one entry."""

    name = "gac"
    Options = GacOptions

    def prepare(self, models: Sequence["LanguageModel"], place: "Place") -> None:
        """Unite the vocabularies, once more for the first position where templates are used."""
        devices = [model.device for model in models]
        self._joint = _unite(
            [TokenKeys.read(model.token_bytes.of, model.stop_ids) for model in models], devices
        )
        self._first_keys = None
        if any(model.chat for model in models):
            self._first_keys = [
                TokenKeys.read(model.token_bytes.of, model.stop_ids, begins=True)
                for model in models
            ]
            self._first_joint = _unite(self._first_keys, devices)

    def decode(self, example: Example) -> Program[None]:
        """Decode one token of the joint vocabulary a round."""

        def choose(texts: Sequence[PendingText]) -> Program[Choice]:
            return self._choose(texts, example.weights)

        return fuse_tokens(example, choose)

    def _choose(self, texts: Sequence[PendingText], weights: Sequence[float]) -> Program[Choice]:
        known = yield from self._asked(texts)
        shares = weights if len(known) == len(weights) else [1.0] * len(weights)
        if self._first_keys is None or any(pending.generated for pending in texts):
            return _choice(self._joint, known, shares)
        choice = _choice(self._first_joint, known, shares)
        return replace(choice, entries=[self._spelt(choice.entries[0], known), *choice.entries[1:]])

    def _asked(self, texts: Sequence[PendingText]) -> Program[dict[int, "NextToken"]]:
        """Return the distribution of the gate alone where it is sure enough, else of all models."""
        if self.options.threshold is not None:
            gate = self.options.gate
            (after,) = yield from distributions([texts[gate]])
            if math.exp(after.top_logprobs[0]) > self.options.threshold:
                return {gate: after}
        return dict(enumerate((yield from distributions(texts))))

    def _spelt(self, chosen: Entry, known: Mapping[int, "NextToken"]) -> Entry:
        assert self._first_keys is not None
        keys = [self._first_keys[number] for number in known]
        vectors = [after.logprobs for after in known.values()]
        return replace(chosen, surface=written(chosen.surface, keys, vectors))


def _choice(
    joint: "JointVocabulary", known: Mapping[int, "NextToken"], weights: Sequence[float]
) -> Choice:
    """Return the likeliest entries under the models that are known."""
    models = range(len(weights))
    best = joint.likeliest({k: after.logprobs for k, after in known.items()}, weights, TRACED)
    found = [
        entry(each.key, each.favourite_of, [each.p.get(k, math.nan) for k in models], each.fused)
        for each in best
    ]
    return Choice(found, tuple((known[k].margin,) if k in known else () for k in models))


def _unite(keys: Sequence[TokenKeys], devices: Sequence["torch.device"]) -> "JointVocabulary":
    from adafuse.methods.joint_vocabulary import JointVocabulary  # loads torch, as the models have

    return JointVocabulary.of(keys, devices)
