"""What the tokens of different models are compared by: their bytes, or that they end the text."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from adafuse.models.language_model import LanguageModel

END = b""
"""The key of all ids that end a text; every other key has at least one byte."""


@dataclass(frozen=True)
class TokenKeys:
    """`of[id]` is the key of an id, None for an id without bytes; `ids[key]` all ids of a key.

    `surfaces[id]` are the bytes themselves, which the key may say without a leading space.
    """

    of: tuple[bytes | None, ...]
    ids: dict[bytes, tuple[int, ...]] = field(repr=False)
    surfaces: Sequence[bytes | None] = field(repr=False, default=())

    @classmethod
    def read(cls, model: "LanguageModel", *, begins: bool = False) -> "TokenKeys":
        """Return the keys of a model; every special token of it is its END.

        Args:
            model: its surfaces are read.
            begins: for the first token behind chat templates, see `without_space`.

        Raises:
            UserError: the tokenizer has no byte surfaces.
        """
        surfaces: Iterable[bytes | None] = model.surfaces.of
        if begins:
            surfaces = (surface and without_space(surface) for surface in surfaces)
        return replace(cls.of_surfaces(surfaces, model.stop_ids), surfaces=model.surfaces.of)

    @classmethod
    def of_surfaces(
        cls, surfaces: Iterable[bytes | None], stop_ids: Container[int] = ()
    ) -> "TokenKeys":
        """Return the keys of a vocabulary that is given as the bytes of each id."""
        keys = [END if i in stop_ids else each or None for i, each in enumerate(surfaces)]
        ids: dict[bytes, list[int]] = {}
        for index, key in enumerate(keys):
            if key is not None:
                ids.setdefault(key, []).append(index)
        return cls(tuple(keys), {key: tuple(group) for key, group in ids.items()})


def without_space(surface: bytes) -> bytes:
    """Return a surface without one leading space, unless it is all whitespace.

    Behind some chat templates an answer begins with a space, behind others it does not; the first
    words of all models meet under this key.
    """
    return surface[1:] if surface.startswith(b" ") and surface.strip() else surface


def written(key: bytes, keys: Sequence[TokenKeys], vectors: Sequence["torch.Tensor"]) -> bytes:
    """Return the bytes to write for a key at the first position: those of its likeliest token.

    Args:
        key: what the models met under.
        keys: of each model.
        vectors: each model's log-probabilities, shape [vocabulary of that model].
    """
    tokens = [
        (float(vector[index]), own.surfaces[index] or END)
        for own, vector in zip(keys, vectors, strict=True)
        for index in own.ids.get(key, ())
    ]
    return key and max(tokens, key=lambda token: token[0], default=(0.0, key))[1]
