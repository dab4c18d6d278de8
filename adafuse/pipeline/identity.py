"""What a model is, for telling whether a result is still its own."""

import hashlib
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_WHOLE = 64 << 20
_EDGE = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """A hub id with its revision, or the content of a folder; `path` only names it for people."""

    path: str
    revision: str | None
    content: str | None

    def key(self) -> list[str | None]:
        """Return what makes two identities the same: a folder may move."""
        return [self.content] if self.content else [self.path, self.revision]


def model_identity(path: str, revision: str | None) -> ModelIdentity:
    """Identify a model; the folder is read once per process."""
    content = _folder_digest(path) if Path(path).is_dir() else None
    return ModelIdentity(path, revision, content)


@cache
def _folder_digest(folder: str) -> str:
    total = hashlib.sha256()
    for path in _files(Path(folder)):
        name = path.relative_to(folder).as_posix()
        total.update(f"{name}\0{file_digest(path)}\n".encode())
    return total.hexdigest()[:32]


def _files(folder: Path) -> list[Path]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return sorted(
        p for p in paths if not any(q.startswith(".") for q in p.relative_to(folder).parts)
    )


def file_digest(path: Path) -> str:
    """Return a digest of a file: of all bytes up to 64 MiB, above that of its size and both ends.

    Weights of many gigabytes must not be read before every plan; a fine-tuned copy differs in
    its ends as well.
    """
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        if size <= _WHOLE:
            digest.update(file.read())
        else:
            digest.update(file.read(_EDGE))
            file.seek(-_EDGE, os.SEEK_END)
            digest.update(file.read())
    return digest.hexdigest()
