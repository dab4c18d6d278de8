"""How large a model is, read off its files without loading it."""

import json
import math
import struct
from functools import cache
from pathlib import Path
from typing import Any

_ITEM = {"float32": 4, "bfloat16": 2, "float16": 2}
_LONGEST_HEADER = 100_000_000  # that of the safetensors format


@cache
def weight_bytes(path: str, revision: str | None, dtype: str) -> int | None:
    """Return the bytes of a model's weights in a dtype.

    Weights of fewer bits, as quantized models store them, count as their files are.

    Args:
        path: folder or hub id; one of the hub is looked up in the cache of this machine.
        revision: of a hub model.
        dtype: what the weights are loaded as.

    Returns:
        None if the weights are not here, or are no safetensors.
    """
    folder = Path(path) if Path(path).is_dir() else cached_folder(path, revision)
    return None if folder is None else _folder_bytes(folder, dtype)


def cached_folder(path: str, revision: str | None) -> Path | None:
    """Return where a hub model lies in the cache of this machine, if it does."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(path, "config.json", revision=revision)
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


def _folder_bytes(folder: Path, dtype: str) -> int | None:
    files = sorted(folder.glob("*.safetensors"))
    sizes = [_file_bytes(file, dtype) for file in files]
    known = [size for size in sizes if size is not None]
    return sum(known) if files and len(known) == len(files) else None


def _file_bytes(file: Path, dtype: str) -> int | None:
    header = _header(file)
    if header is None:
        return None
    tensors = [tensor for name, tensor in header.items() if name != "__metadata__"]
    return sum(_tensor_bytes(tensor, dtype) for tensor in tensors)


def _tensor_bytes(tensor: dict[str, Any], dtype: str) -> int:
    start, end = tensor["data_offsets"]
    floating = tensor["dtype"] in ("F32", "F16", "BF16")
    return math.prod(tensor["shape"]) * _ITEM[dtype] if floating else int(end - start)


def _header(file: Path) -> dict[str, Any] | None:
    """Return what a safetensors file says of its tensors; None for anything else."""
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            header = json.loads(opened.read(min(length, _LONGEST_HEADER)))
    except (OSError, ValueError, struct.error):
        return None
    return header if isinstance(header, dict) else None
