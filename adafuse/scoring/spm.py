"""The SentencePiece model behind spBLEU: where sacrebleu looks for it, and which one it is.

sacrebleu fetches the file without checking its bytes, so every result carries its sha256.
"""

import hashlib
from importlib import import_module
from pathlib import Path
from typing import Any

from adafuse.errors import UserError

TOKENIZER = "flores101"


class AbsentModelError(UserError):
    """The model is not here and cannot be fetched."""


def model_file() -> Path:
    """Return the place where sacrebleu keeps the model: $SACREBLEU, or ~/.sacrebleu."""
    spm = _sacrebleu()
    name = Path(spm.SPM_MODELS[TOKENIZER]["url"]).name
    return Path(spm.SACREBLEU_DIR, "models", name)


def require_model(expected: str | None = None) -> str:
    """Return the sha256 of the model, after fetching it if it is absent.

    Args:
        expected: the sha256 that it must have.

    Raises:
        UserError: absent and not to be fetched, empty, or other bytes than expected.
    """
    path = model_file()
    if not path.is_file():
        _fetch(path)
    data = path.read_bytes()
    if not data:
        raise UserError(f"SentencePiece model {str(path)!r} is empty; remove it or put it there")
    found = hashlib.sha256(data).hexdigest()
    if expected is not None and found != expected:
        raise UserError(
            f"SentencePiece model {str(path)!r} has sha256 {found}, not {expected}; put back the"
            " model that was named"
        )
    return found


def _sacrebleu() -> Any:
    """Import the module that looks for the file, so that both always mean the same place."""
    return import_module("sacrebleu.tokenizers.tokenizer_spm")


def _fetch(path: Path) -> None:
    spm = _sacrebleu()
    try:
        spm.download_file(spm.SPM_MODELS[TOKENIZER]["url"], str(path))
    except (OSError, SystemExit) as error:  # sacrebleu exits on a TLS error
        raise AbsentModelError(
            f"spBLEU needs the SentencePiece model {path.name}, which cannot be fetched"
            f" ({' '.join(str(error).split())}); put it at {str(path)!r} or use the metric"
            " translation_13a"
        ) from None
