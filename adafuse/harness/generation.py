"""What a task says about generating, as far as fused decoding can do it: it is greedy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adafuse.errors import UserError

LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""Names for the same thing in the harness."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "do_sample": (False, None),
    "temperature": (0, None),
    "num_beams": (1, None),
    "n": (1, None),
    "num_return_sequences": (1, None),
    "repetition_penalty": (1, None),
    "presence_penalty": (0, None),
    "frequency_penalty": (0, None),
    "length_penalty": (1, None),
    "no_repeat_ngram_size": (0, None),
}
"""Settings with the values that change nothing about greedy decoding."""
IDLE = ("top_p", "top_k", "min_p", "typical_p", "seed", "early_stopping", "use_cache")
"""Settings whose value makes no difference to greedy decoding: the likeliest id is always kept."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """How far one request is to be continued; requests with the same are decoded together."""

    stop: tuple[str, ...]
    max_new_tokens: int


def read_generation(given: Mapping[str, Any], default: int) -> Wanted:
    """Check the generation settings of a request.

    Args:
        given: `generation_kwargs` of the task, changed by `--gen_kwargs`.
        default: the most new tokens where the task says nothing.

    Raises:
        UserError: a setting that is unknown, or asks for something else than greedy decoding.
    """
    for name, value in given.items():
        if not (name == "temperature" and value == 1 and given.get("do_sample") is False):
            _check(name, value)  # the default of a sampling that is switched off is none
    return Wanted(_stop(given.get("until")), _length(given, default))


def _check(name: str, value: object) -> None:
    if name in ("until", *LENGTHS, *IDLE):
        return
    if name not in NEUTRAL:
        known = ", ".join(("until", *LENGTHS, *NEUTRAL, *IDLE))
        raise UserError(f"unknown generation setting {name!r}; known are: {known}")
    if value not in NEUTRAL[name]:
        neutral = NEUTRAL[name][0]
        raise UserError(
            f"generation setting {name} is {value!r}, but fused decoding is greedy; say"
            f" --gen_kwargs {name}={neutral}, or take another task"
        )


def _stop(until: object) -> tuple[str, ...]:
    strings = [until] if isinstance(until, str) else until or []
    if not isinstance(strings, Sequence) or not all(isinstance(text, str) for text in strings):
        raise UserError(f"generation setting until is {until!r}; give a string or a list of them")
    return tuple(text for text in strings if text)


def _length(given: Mapping[str, Any], default: int) -> int:
    lengths = {name: given[name] for name in LENGTHS if given.get(name) is not None}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name}={value}" for name, value in lengths.items())
        raise UserError(f"generation settings {told} contradict each other; give one of them")
    length = next(iter(lengths.values()), default)
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        raise UserError(
            f"generation setting {next(iter(lengths), LENGTHS[0])} is {length!r}; give a whole"
            " number above 0"
        )
    return length
