"""The files of a model: which hold weights, how large they are, and a digest of them."""

import hashlib
import json
import math
import os
import re
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from adafuse.errors import UserError
from adafuse.models.spec import GGUF, WITH
from adafuse.storage.files import file_state, file_times, files_below, write_text

SAFE = "*.safetensors"
PICKLED = ("pytorch_model.bin", "pytorch_model-*.bin")
"""Names by which transformers finds pickled weights; other files of that format are not weights."""

REFUSED = (
    "has no safetensors weights, and pickled ones can hold code; if you trust who made them, set"
    " allow_pickle for this model (fuser_allow_pickle for the fuser of llm_blender)"
)


MERGE = "merge it into its base model (merge_and_unload of peft) and name the folder of the result"
_ADAPTERS = ("adapter_config.json", "adapter_model.*", "*lora*.safetensors")
_UNREAD = re.compile(r"\.(safetensors|bin|pth?|gguf|onnx|onnx_data|h5|msgpack)$")
_WEIGHTS = re.compile(rf"{_UNREAD.pattern}|\.index\.json$")


def safe_files(folder: Path) -> list[Path]:
    """Return the safetensors files that transformers loads: of one name, or those of the index."""
    return _loaded(folder, "model.safetensors", (SAFE,))


def pickled_files(folder: Path) -> list[Path]:
    """Return the pickled files that transformers loads where there are no others."""
    return _loaded(folder, "pytorch_model.bin", PICKLED)


def _loaded(folder: Path, name: str, patterns: Sequence[str]) -> list[Path]:
    for main in (_named_weights(folder), name):
        if main is not None and (folder / main).is_file():
            named = indexed_files(folder, main) if main.endswith(".json") else [main]
            return [folder / file for file in named or () if Path(file).match(patterns[0])]
    if (named := indexed_files(folder, f"{name}.index.json")) is not None:
        return [folder / file for file in named if (folder / file).is_file()]
    # Without an index nothing is loaded; other files tell what the folder is meant to be.
    files = sorted(file for pattern in patterns for file in folder.glob(pattern))
    return [file for file in files if not file.name.startswith("consolidated")]


def _named_weights(folder: Path) -> str | None:
    """Return the file of weights that a config names, if it does."""
    with suppress(OSError, ValueError, AttributeError, RecursionError):
        named = json.loads((folder / "config.json").read_text("utf-8")).get("transformers_weights")
        return named if isinstance(named, str) else None
    return None


def indexed_files(folder: Path, index: str) -> list[str] | None:
    """Return the files of weights that an index names; None if it cannot be read."""
    try:
        named = json.loads((folder / index).read_text(encoding="utf-8"))["weight_map"].values()
        return sorted(set(map(str, named)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


INDEX = "model.safetensors.index.json"


def missing_weights(folder: Path) -> list[str] | None:
    """Return the files of weights that a folder lacks by its index; None if that is unreadable."""
    if not (folder / INDEX).is_file():
        return []
    named = indexed_files(folder, INDEX)
    return named and [file for file in named if not (folder / file).is_file()]


def check_adapter(path: str, folder: Path) -> None:
    """Refuse an adapter, such as a LoRA: alone it is no model, beside weights it is not read."""
    if not (adapters := sorted(file.name for form in _ADAPTERS for file in folder.glob(form))):
        return
    weights = {file.name for file in [*safe_files(folder), *pickled_files(folder)]}
    if weights.difference(adapters):
        raise UserError(
            f"model {path!r} has a LoRA or other adapter ({adapters[0]}) beside its weights, which"
            f" would not be applied; {MERGE}, or take the adapter out of the folder"
        )
    raise UserError(
        f"model {path!r} is a LoRA or other adapter ({adapters[0]}), not a model; name its base"
        f" model, and this folder as its adapter (--adapter, `adapter`), or {MERGE}"
    )


def check_merged(path: str, unexpected: Iterable[str]) -> None:
    """Refuse weights among which there are those of an adapter, which a network does not have."""
    if adapters := sorted(name for name in map(str, unexpected) if "lora_" in name):
        raise UserError(
            f"model {path!r} has weights of a LoRA ({adapters[0]}), which would not be applied;"
            f" {MERGE}"
        )


def check_pickled(path: str, *, allowed: bool) -> None:
    """Refuse a folder with an adapter, or with weights in pickle format only if not allowed."""
    folder = Path(path)
    check_adapter(path, folder)
    if not allowed and pickled_files(folder) and not safe_files(folder):
        raise UserError(f"model {path!r} {REFUSED}")


def check_whole(path: str, revision: str | None) -> None:
    """Refuse safetensors weights of which a file is not there, is cut off, or is no such file.

    Those of a hub model are looked up in this machine's cache, where some may yet be missing.
    """
    if (folder := local_path(path, revision)) is None or folder.is_file():
        return
    missing = missing_weights(folder) if Path(path).is_dir() else []
    if missing is None:
        raise UserError(
            f"the file {INDEX!r} of model {path!r} does not say which files hold its weights;"
            " download it again"
        )
    if missing:
        more = f", and {len(missing) - 1} others" if len(missing) > 1 else ""
        raise UserError(
            f"model {path!r} lacks the file {missing[0]!r} of its weights{more}; download it again"
        )
    for file in safe_files(folder):
        if _file_bytes(file, "float32", None) is None:
            raise UserError(
                f"the file {file.name!r} of model {path!r} is cut off or no safetensors file;"
                " download it again"
            )


_ITEM = {"float32": 4, "bfloat16": 2, "float16": 2}
_QUANTIZED = {"int8": 1.0, "int4": 4.5 / 8}  # NF4 has a float32 for each 64 weights
LAYER = re.compile(r"(^|\.)\d+\.")
"""Where the number of a layer ends in the name of a weight."""


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
    if (folder := local_path(path, revision)) is None:
        return None
    if not (files := safe_files(folder)):
        size = sum(file.stat().st_size for file in pickled_files(folder))
        return size // 2 * _ITEM[dtype] or None
    sizes = [_file_bytes(file, dtype, quantization) for file in files]
    return None if None in sizes else math.ceil(math.fsum(filter(None, sizes)))


def item_bytes(dtype: str, quantization: str | None) -> float:
    """Return the bytes of one weight of a linear layer."""
    return _ITEM[dtype] if quantization is None else _QUANTIZED[quantization]


def is_linear(name: str, shape: Sequence[int]) -> bool:
    """Whether a weight is that of a linear layer, which `quantization` makes smaller."""
    return len(shape) == 2 and LAYER.search(name) is not None and ".experts." not in name


def local_path(path: str, revision: str | None) -> Path | None:
    """Return the folder or GGUF file of a model, which a hub model has in this machine's cache."""
    if Path(path).exists():
        return Path(path)
    if not path.endswith(GGUF):
        return cached_folder(path, revision)
    source, _, name = path.rpartition("/")
    folder = cached_folder(source, revision, name)
    return folder and folder / name


def is_here(path: str, revision: str | None, *, served: bool) -> bool:
    """Whether a model can be loaded without the hub; one that is `served` needs no weights."""
    place = local_path(path, revision)
    if place is None or served or place.is_file():
        return place is not None
    return missing_weights(place) == [] and weight_bytes(path, revision, "bfloat16") is not None


def cached_folder(path: str, revision: str | None, file: str = "config.json") -> Path | None:
    """Return the folder of this machine's cache that has a file of a hub model."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = try_to_load_from_cache(path, file, revision=revision)
    except HFValidationError:
        return None
    return Path(cached).parent if isinstance(cached, str) else None


def _gguf_bytes(path: str, revision: str | None, dtype: str) -> int | None:
    from gguf import GGUFReader

    file = local_path(path, revision)
    try:
        tensors = [] if file is None else GGUFReader(file).tensors
    except (OSError, ValueError, IndexError, struct.error):
        return None
    return sum(int(tensor.n_elements) for tensor in tensors) * _ITEM[dtype] or None


def _file_bytes(file: Path, dtype: str, quantization: str | None) -> float | None:
    """Return the bytes of the weights of a safetensors file; None if it is none, or torn."""
    from huggingface_hub import parse_local_safetensors_file_metadata
    from huggingface_hub.errors import SafetensorsParsingError

    try:
        tensors = parse_local_safetensors_file_metadata(file).tensors
        with file.open("rb") as content:
            header = 8 + int.from_bytes(content.read(8), "little")
    except (OSError, SafetensorsParsingError):
        return None
    ends = (tensor.data_offsets[1] for tensor in tensors.values())
    if file.stat().st_size < header + max(ends, default=0):
        return None
    total = 0.0
    for name, tensor in tensors.items():
        if tensor.dtype in ("F32", "F16", "BF16"):
            how = quantization if is_linear(name, tensor.shape) else None
            total += math.prod(tensor.shape) * item_bytes(dtype, how)
        else:
            total += tensor.data_offsets[1] - tensor.data_offsets[0]
    return total


class KnownDigests:
    """SHA-256 digests of files; a file is read once while its `file_state` is the same."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def load(self, record: Path) -> None:
        """Take over what was recorded; a record that cannot be read is none."""
        with suppress(OSError, ValueError, TypeError, RecursionError):
            self._known |= json.loads(record.read_text(encoding="utf-8"))

    def save(self, record: Path) -> None:
        """Record what is known of the latest state of each file."""
        latest = {key.rsplit(" ", 5)[0]: key for key in self._known}
        known = {key: self._known[key] for key in latest.values()}
        if known:
            write_text(record, json.dumps(known, indent=0) + "\n")

    def of(self, files: Sequence[Path]) -> list[str]:
        """Return the digests of files; several are read at a time, with a progress bar."""
        from rich.console import Console
        from rich.progress import Progress

        keys = [self._key(file) for file in files]
        unread = [
            (key, file) for key, file in zip(keys, files, strict=True) if key not in self._known
        ]
        total = sum(file.stat().st_size for _, file in unread)
        hidden = total < _LONG or not sys.stderr.isatty()
        with Progress(console=Console(stderr=True), transient=True, disable=hidden) as bar:
            task = bar.add_task("reading weights", total=total)
            done = partial(bar.advance, task)
            with ThreadPoolExecutor(_READERS) as pool:
                digests = pool.map(lambda each: _sha256(each[1], done), unread)
                self._known |= dict(zip((key for key, _ in unread), digests, strict=True))
        return [self._known[key] for key in keys]

    @staticmethod
    def _key(file: Path) -> str:
        return f"{file.resolve()} {file_state(file)}"


def _sha256(file: Path, done: Callable[[int], object]) -> str:
    for _ in range(_TRIES):
        digest = hashlib.sha256()
        with file.open("rb") as content:
            before = file_times(os.fstat(content.fileno()))
            while block := content.read(_BLOCK):
                digest.update(block)
                done(len(block))
        if file_times(file.stat()) == before:
            return digest.hexdigest()
    raise UserError(f"{str(file)!r} changes while it is read; run again when it is complete")


_BLOCK = 8 << 20
_TRIES = 3
_LONG = 2 << 30  # bytes whose reading is worth a progress bar
_READERS = 4

DIGESTS = KnownDigests()
"""What this process knows; the workflow keeps it beside its results."""


@cache
def content_digest(path: str, *, served: bool = False) -> str | None:
    """Return a digest of a model's file, or of its folder; None for a hub id.

    Hidden files and Markdown, as model cards, do not count, nor do weights that are not loaded; no
    weights of a model that is `served`, which need not be in the folder.
    """
    if (folder := Path(path)).is_dir():
        unread = "".join(f"|^{re.escape(name)}$" for name in _unread_weights(folder))
        unread = f"|{_WEIGHTS.pattern}" if served else unread
        return folder_digest(folder, rf"(^|/)\.|\.md${unread}")
    return DIGESTS.of([Path(path)])[0][:32] if Path(path).is_file() else None


def _unread_weights(folder: Path) -> list[str]:
    """Return the weights of a folder that nobody loads, unless it has code that might."""
    if not (folder / "config.json").is_file() or any(folder.glob("*.py")):
        return []
    loaded = safe_files(folder) or pickled_files(folder)
    around = [*folder.iterdir(), *folder.glob("original/*")]
    files = [file for file in around if _UNREAD.search(file.name) and file.is_file()]
    return [file.relative_to(folder).as_posix() for file in files if file not in loaded]


def folder_digest(folder: Path, without: str) -> str:
    """Return a digest of the files of a folder, but for those of names that have a pattern."""
    names = [file.relative_to(folder).as_posix() for file in sorted(files_below(folder))]
    names = [name for name in names if not re.search(without, name)]
    digests = DIGESTS.of([folder / name for name in names])
    lines = (f"{name}\0{digest}\n" for name, digest in zip(names, digests, strict=True))
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:32]


def check_unchanged(name: str, *, served: bool = False) -> None:
    """Refuse a model whose files are not those that this process has made a digest of."""
    for path in name.split(WITH):
        if content_digest.__wrapped__(path, served=served) != content_digest(path, served=served):
            raise UserError(f"model {path!r} was changed while it was loaded; run again")


def keys_now(names: Iterable[str]) -> list[list[str | None]]:
    """Return the keys of models by their names, where this process may have saved them again."""
    content_digest.cache_clear()
    return [model_key(name, None) for name in names]


def model_key(name: str, revision: str | None, *, served: bool = False) -> list[str | None]:
    """Return what makes two models the same: the content of a folder, or a hub id at a revision.

    Of a model that is `served`, weights do not count; an adapter does.
    """
    path, *adapter = name.split(WITH)
    content = content_digest(path, served=served)
    return [*([path, revision] if content is None else [content]), *map(content_digest, adapter)]
