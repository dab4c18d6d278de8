"""The files of a model: which hold weights, how large they are, and a digest of them."""

import hashlib
import math
import os
import re
from functools import cache
from pathlib import Path

from adafuse.errors import UserError
from adafuse.models.spec import GGUF

SAFE = "*.safetensors"
PICKLED = ("pytorch_model.bin", "pytorch_model-*.bin")
"""Names by which transformers finds pickled weights; other files of that format are not weights."""

REFUSED = (
    "has no safetensors weights, and pickled ones can hold code; if you trust who made them, set"
    " allow_pickle for this model (fuser_allow_pickle for the fuser of llm_blender)"
)


def safe_files(folder: Path) -> list[Path]:
    return sorted(folder.glob(SAFE))


def pickled_files(folder: Path) -> list[Path]:
    return sorted(file for pattern in PICKLED for file in folder.glob(pattern))


def check_pickled(path: str, *, allowed: bool) -> None:
    """Refuse a folder that holds weights in pickle format only, unless that is allowed."""
    folder = Path(path)
    if not allowed and pickled_files(folder) and not safe_files(folder):
        raise UserError(f"model {path!r} {REFUSED}")


_ITEM = {"float32": 4, "bfloat16": 2, "float16": 2}
_QUANTIZED = {"int8": 1.0, "int4": 4.5 / 8}  # NF4 has a float32 for each 64 weights
_LAYER = re.compile(r"(^|\.)\d+\.")


@cache
def weight_bytes(
    path: str, revision: str | None, dtype: str, quantization: str | None = None
) -> int | None:
    """Return the bytes of a model's weights in a dtype.

    Quantized are linear layers, which are the matrices within numbered layers; embeddings, the head
    over the vocabulary and a mixture's experts keep the dtype, as bitsandbytes leaves them. Weights
    of fewer bits, as quantized models store them, count as their files are; pickled ones as if each
    had 16 bits there; those of a GGUF file are dequantized. A hub model is looked up in this
    machine's cache; None if the weights are not here, or cannot be read.
    """
    if path.endswith(GGUF):
        return _gguf_bytes(path, revision, dtype)
    folder = Path(path) if Path(path).is_dir() else cached_folder(path, revision)
    if folder is None:
        return None
    if not (files := safe_files(folder)):
        size = sum(file.stat().st_size for file in pickled_files(folder))
        return size // 2 * _ITEM[dtype] or None
    sizes = [_file_bytes(file, dtype, quantization) for file in files]
    return None if None in sizes else math.ceil(math.fsum(filter(None, sizes)))


def item_bytes(dtype: str, quantization: str | None) -> float:
    """Return the bytes of one weight of a linear layer."""
    return _ITEM[dtype] if quantization is None else _QUANTIZED[quantization]


def cached_folder(path: str, revision: str | None, file: str = "config.json") -> Path | None:
    """Return the folder of this machine's cache that has a file of a hub model."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(path, file, revision=revision)
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


def _gguf_bytes(path: str, revision: str | None, dtype: str) -> int | None:
    from gguf import GGUFReader

    source, _, name = path.rpartition("/")
    folder = Path(source) if Path(path).is_file() else cached_folder(source, revision, name)
    try:
        tensors = [] if folder is None else GGUFReader(folder / name).tensors
    except (OSError, ValueError, IndexError):
        return None
    return sum(int(tensor.n_elements) for tensor in tensors) * _ITEM[dtype] or None


def _file_bytes(file: Path, dtype: str, quantization: str | None) -> float | None:
    """Return the bytes of the weights of a safetensors file; None if it is not one."""
    from huggingface_hub import parse_local_safetensors_file_metadata
    from huggingface_hub.errors import SafetensorsParsingError

    try:
        tensors = parse_local_safetensors_file_metadata(file).tensors
    except (OSError, SafetensorsParsingError):
        return None
    total = 0.0
    for name, tensor in tensors.items():
        if tensor.dtype in ("F32", "F16", "BF16"):
            linear = len(tensor.shape) == 2 and _LAYER.search(name) and ".experts." not in name
            total += math.prod(tensor.shape) * item_bytes(dtype, quantization if linear else None)
        else:
            total += tensor.data_offsets[1] - tensor.data_offsets[0]
    return total


_WHOLE = 64 << 20
_EDGE = 1 << 20


@cache
def content_digest(path: str) -> str | None:
    """Return a digest of a file, or of a folder's files but hidden ones; None for a hub id."""
    folder = Path(path)
    if folder.is_file():
        return file_digest(folder)[:32]
    if not folder.is_dir():
        return None
    total = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if file.is_file() and not re.search(r"(^|/)\.", name):
            total.update(f"{name}\0{file_digest(file)}\n".encode())
    return total.hexdigest()[:32]


def model_key(path: str, revision: str | None) -> list[str | None]:
    """Return what makes two models the same: the content of a folder, or a hub id at a revision."""
    content = content_digest(path)
    return [path, revision] if content is None else [content]


def file_digest(path: Path) -> str:
    """Return a digest of a file: of all bytes up to 64 MiB, above that of its size and both ends.

    Weights of many gigabytes must not be read before every plan; a fine-tuned copy differs in
    its ends as well.
    """
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        digest.update(file.read(size if size <= _WHOLE else _EDGE))
        if size > _WHOLE:
            file.seek(-_EDGE, os.SEEK_END)
            digest.update(file.read())
    return digest.hexdigest()
