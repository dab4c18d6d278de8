"""The files of a model's weights: safetensors, or pickled ones where a user allows them."""

from pathlib import Path

from adafuse.errors import UserError

SAFE = "*.safetensors"
PICKLED = ("pytorch_model.bin", "pytorch_model-*.bin")
"""Names by which transformers finds pickled weights; other files of that format are no weights."""

REFUSED = (
    "has no safetensors weights, and pickled ones can hold code; if you trust who made them, set"
    " allow_pickle for this model"
)


def safe_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a model folder."""
    return sorted(folder.glob(SAFE))


def pickled_files(folder: Path) -> list[Path]:
    """Return the pickled weights of a model folder."""
    return sorted(file for pattern in PICKLED for file in folder.glob(pattern))


def check_pickled(path: str, *, allowed: bool) -> None:
    """Refuse a folder that holds weights in pickle format only, unless that is allowed.

    Raises:
        UserError: there are no safetensors among its files.
    """
    folder = Path(path)
    if not allowed and pickled_files(folder) and not safe_files(folder):
        raise UserError(f"model {path!r} {REFUSED}")
