"""All decoding methods by name. A new method is one file and one line here.

A package of somebody else adds its methods and fusion rules as entry points of the groups
`adafuse.methods` and `adafuse.fusion_rules`, a script with `register` and `fusion_rule`.
"""

from collections.abc import Mapping
from typing import Any

from adafuse.decoding.fusion import fusion_rule
from adafuse.decoding.method import Method
from adafuse.errors import UserError
from adafuse.methods.adafuse import AdaFuse, BeamScaling, FixedLength, Single
from adafuse.methods.bytewise import Bytewise
from adafuse.methods.cool_fusion import CoolFusion
from adafuse.methods.deepen.method import Deepen
from adafuse.methods.gac import Gac
from adafuse.methods.llm_blender.method import LlmBlender
from adafuse.methods.rerank import Rerank
from adafuse.methods.self_consistency import SelfConsistency
from adafuse.methods.specfuse import SpecFuse
from adafuse.methods.sweetspan import SweetSpan
from adafuse.methods.unite import Unite
from adafuse.options import parse
from adafuse.plugins import add_installed, not_there, note, twice

METHODS: dict[str, type[Method[Any]]] = {}


def register(method: type[Method[Any]]) -> type[Method[Any]]:
    """Register a method under its name; usable as a decorator.

    Raises:
        UserError: it is not a whole subclass of `Method`, or another method has that name.
    """
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise UserError(f"{method!r} is not a decoding method; derive a class from Method")
    needed = ("name", "Options", "decode")
    if missing := [n for n in needed if not hasattr(method, n) or n in method.__abstractmethods__]:
        raise UserError(f"method class {method.__name__} has no {missing[0]}; give it one")
    note(method)
    if (known := METHODS.setdefault(method.name, method)) is not method:
        raise UserError(twice("method", method.name, known, method))
    return method


_OWN: tuple[type[Method[Any]], ...] = (
    *(Single, AdaFuse, FixedLength, BeamScaling),
    *(Unite, Gac, Deepen, Bytewise),
    *(SweetSpan, CoolFusion, SpecFuse),
    *(Rerank, LlmBlender, SelfConsistency),
)
"""In the paper, of tokens, of spans, of finished answers."""
for _method in _OWN:
    register(_method)
add_installed("method", register)
add_installed("fusion rule", fusion_rule)


def resolve(name: str, options: Mapping[str, Any]) -> Method[Any]:
    """Return the method `name` with its options, completed by the defaults.

    Raises:
        UserError: an unknown method or option, or a value that is not allowed.
    """
    if name not in METHODS:
        raise UserError(not_there("method", name, list(METHODS)))
    method = METHODS[name]
    return method(parse(method.Options, options, f"method {name}"))
