"""AdaFuse: several language models generate one text together, word by word.

`Ensemble` and the records of its results are the Python interface. The names are imported on first
use, because loading transformers takes seconds that most commands do not need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from adafuse.errors import UserError
from adafuse.records.result import Answer, Candidate, Chat, Likelihood, Result, Round, Turn
from adafuse.version import __version__

if TYPE_CHECKING:
    from adafuse.ensemble import Ensemble, TextStream
    from adafuse.models.spec import ModelSpec
    from adafuse.results import Results

__all__ = [
    "Answer",
    "Candidate",
    "Chat",
    "Ensemble",
    "Likelihood",
    "ModelSpec",
    "Result",
    "Results",
    "Round",
    "TextStream",
    "Turn",
    "UserError",
    "__version__",
]


_LAZY = {
    "Ensemble": "adafuse.ensemble",
    "ModelSpec": "adafuse.models.spec",
    "Results": "adafuse.results",
    "TextStream": "adafuse.ensemble",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'adafuse' has no attribute {name!r}")
