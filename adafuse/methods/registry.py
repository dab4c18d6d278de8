"""All decoding methods by name. A new method is one file and one line here."""

from collections.abc import Mapping
from typing import Any

from adafuse.errors import UserError, known
from adafuse.methods.adafuse import AdaFuse
from adafuse.methods.beam_scaling import BeamScaling
from adafuse.methods.fixed_length import FixedLength
from adafuse.methods.method import Method
from adafuse.methods.options import parse
from adafuse.methods.single import Single

METHODS: dict[str, type[Method[Any]]] = {
    method.name: method for method in (Single, AdaFuse, FixedLength, BeamScaling)
}


def resolve(name: str, options: Mapping[str, Any]) -> Method[Any]:
    """Return the method `name` with `options` checked and completed by its defaults.

    Raises:
        UserError: no such method, an option that it does not have, or a value out of range.
    """
    if name not in METHODS:
        raise UserError(known("method", name, list(METHODS)))
    method = METHODS[name]
    return method(parse(method.Options, options, f"method {name}"))
