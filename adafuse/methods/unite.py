"""`unite`: union of the models' top-k tokens (UniTE, arXiv 2410.03777)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from adafuse.engine.program import Program
from adafuse.methods.example import Example
from adafuse.methods.method import Method
from adafuse.methods.options import MethodOptions, ModelNumber, Positive, check_number
from adafuse.methods.strand import Strand
from adafuse.methods.token_rounds import Choice, Entry, distributions, entry, fuse_tokens
from adafuse.text.first_token import first_token
from adafuse.tokens.keys import TokenKeys, written
from adafuse.tokens.union import (
    Duplicates,
    Normalise,
    average,
    logits,
    probabilities,
    readings,
    union,
)
from adafuse.told import told

if TYPE_CHECKING:
    from adafuse.engine.node import NextToken
    from adafuse.models.devices import Place
    from adafuse.models.language_model import LanguageModel


class UniteOptions(MethodOptions):
    """What the paper leaves open, and where the published code differs."""

    top_k: Annotated[Positive, told("k, how many of each model's likeliest tokens are united")] = 10
    primary: Annotated[
        ModelNumber, told("number of the model whose tokens come first among equals")
    ] = 0
    duplicates: Annotated[
        Duplicates,
        told(
            "what an entry gets in a model that lacks it and whose first token for it already"
            " stands for another entry: nothing (`exclude`), that token's probability (`keep`: the"
            " published code for SentencePiece models), or logit 0 (`zero`: the published code for"
            " others; not invariant to shifts, and above every other logit here, where logits are"
            " log-probabilities)"
        ),
    ] = "exclude"
    normalise: Annotated[
        Normalise,
        told("take probabilities over the union, as published, or over the whole vocabulary"),
    ] = "union"
    commit: Annotated[
        Literal["surface", "first_token"],
        told("write the chosen string, or, as published, the primary's first token of it"),
    ] = "surface"


class Unite(Method[UniteOptions]):
    """Unites the models' likeliest tokens, averages what the models give to each, with weights w_k,
    and takes the best; ties go to the better rank, then to the primary."""

    name = "unite"
    Options = UniteOptions

    @property
    def top(self) -> int:
        """k, and two for the margin."""
        return max(2, self.options.top_k)

    def check_models(self, count: int) -> None:
        """Refuse a primary that does not exist."""
        super().check_models(count)
        check_number("method unite: primary", self.options.primary, count)

    def prepare(self, models: Sequence["LanguageModel"], place: "Place") -> None:
        """Read what the tokens are compared by, at the first position behind a template, too."""
        chat = any(model.chat for model in models)
        self._keys = [TokenKeys.read(model) for model in models]
        self._first_keys = (
            [TokenKeys.read(model, begins=True) for model in models] if chat else None
        )
        others = (number for number in range(len(models)) if number != self.options.primary)
        self._order = (self.options.primary, *others)

    def decode(self, example: Example) -> Program[None]:
        """Decode one token of the union a round."""

        def choose(strands: Sequence[Strand]) -> Program[Choice]:
            return self._choose(strands, example.weights)

        return fuse_tokens(example, choose)

    def _choose(self, strands: Sequence[Strand], weights: Sequence[float]) -> Program[Choice]:
        known = yield from distributions(strands)
        begun = any(strand.generated for strand in strands)
        keys = self._keys if begun or self._first_keys is None else self._first_keys
        top_k = [
            [own.of[z] for z in after.ids[: self.options.top_k]]
            for own, after in zip(keys, known, strict=True)
        ]
        entries = union(top_k[number] for number in self._order)
        rows = [
            self._probabilities(entries, strand, own, after)
            for strand, own, after in zip(strands, keys, known, strict=True)
        ]
        fused = average(rows, weights)
        found = [
            entry(key, [k for k, top in enumerate(top_k) if key in top], row, p)
            for key, *row, p in zip(entries, *rows, fused, strict=True)
        ]
        found.sort(key=lambda each: each.fused)
        if keys is self._first_keys and found:
            surface = written(found[0].surface, keys, [after.vector for after in known])
            found[0] = replace(found[0], surface=surface)
        if self.options.commit == "first_token":
            found[0] = self._begun(found[0], strands)
        return Choice(found, tuple((after.margin,) for after in known))

    def _probabilities(
        self, entries: Sequence[bytes], strand: Strand, keys: TokenKeys, after: "NextToken"
    ) -> list[float]:
        """p_k of each entry: by its ids, or by its first token where the vocabulary lacks it."""
        places = readings(entries, keys.ids, partial(first_token, strand.sequence.model))
        values = logits(entries, places, after.vector, self.options.duplicates)
        return probabilities(values, self.options.normalise)

    def _begun(self, chosen: Entry, strands: Sequence[Strand]) -> Entry:
        primary = self.options.primary
        model = strands[primary].sequence.model
        token = first_token(model, chosen.surface)
        surface = None if token is None else model.surfaces.of[token]
        return replace(chosen, surface=surface) if surface else chosen
