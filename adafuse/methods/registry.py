"""All decoding methods by name. A new method is one file and one line here.

A package of somebody else adds its methods as entry points of the group `adafuse.methods`, a
script with `register`.
"""

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from adafuse.decoding.method import Method
from adafuse.errors import UserError, unknown
from adafuse.methods.adafuse import AdaFuse, BeamScaling, FixedLength, Single
from adafuse.methods.bytewise import Bytewise
from adafuse.methods.cool_fusion import CoolFusion
from adafuse.methods.deepen.method import Deepen
from adafuse.methods.gac import Gac
from adafuse.methods.llm_blender.method import LlmBlender
from adafuse.methods.rerank import Rerank
from adafuse.methods.specfuse import SpecFuse
from adafuse.methods.sweetspan import SweetSpan
from adafuse.methods.unite import Unite
from adafuse.options import parse

METHODS: dict[str, type[Method[Any]]] = {}


def register(method: type[Method[Any]]) -> type[Method[Any]]:
    """Add a method under its name, which no other method may have; usable as a decorator."""
    if METHODS.setdefault(method.name, method) is not method:
        raise UserError(f"there are two methods {method.name!r}; rename one of them")
    return method


_PAPER = [Single, AdaFuse, FixedLength, BeamScaling]
_TOKENS = [Unite, Gac, Deepen, Bytewise]
_SPANS = [SweetSpan, CoolFusion, SpecFuse]
_ANSWERS = [Rerank, LlmBlender]
_INSTALLED = [entry.load() for entry in entry_points(group="adafuse.methods")]
for _method in (*_PAPER, *_TOKENS, *_SPANS, *_ANSWERS, *_INSTALLED):
    register(_method)


def resolve(name: str, options: Mapping[str, Any]) -> Method[Any]:
    """Return the method `name` with `options` checked and completed by its defaults."""
    if name not in METHODS:
        raise UserError(unknown("method", name, list(METHODS)))
    method = METHODS[name]
    return method(parse(method.Options, options, f"method {name}"))
