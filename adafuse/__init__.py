"""AdaFuse: several language models decode one text together, word by word.

`Ensemble` and the result records are the Python interface; the names are imported on first use,
because loading transformers takes seconds that most commands do not need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from adafuse.errors import UserError
from adafuse.records.result import Candidate, Chat, Likelihood, Result, Round, Turn
from adafuse.version import __version__

if TYPE_CHECKING:
    from adafuse.ensemble import Ensemble
    from adafuse.results import Results

__all__ = [
    "Candidate",
    "Chat",
    "Ensemble",
    "Likelihood",
    "Result",
    "Results",
    "Round",
    "Turn",
    "UserError",
    "__version__",
]


_LAZY = {"Ensemble": "adafuse.ensemble", "Results": "adafuse.results"}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'adafuse' has no attribute {name!r}")
