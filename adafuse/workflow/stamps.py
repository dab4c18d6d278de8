"""Stamps: what an output of the workflow was made from, and what it held then.

A stamp stands beside its output, in `.stamps/NAME.json`. While Snakemake plans, an output whose
stamp does not fit the plan is made again, whatever Snakemake's own records say.
"""

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from adafuse.errors import UserError
from adafuse.storage.files import file_state, write_text
from adafuse.storage.journal import too_many
from adafuse.storage.parquet import read_metadata

DAMAGED = "damaged"  # the digest of what is to be made again


@dataclass(frozen=True, slots=True)
class Stamp:
    """`digest` is the plan's of all that an output is made from, `sha256` that of its content.

    A file in the same `state` is taken for the same; a folder has none.
    """

    digest: str
    sha256: str
    state: str


def stamp_path(output: Path) -> Path:
    return output.parent / ".stamps" / f"{output.name}.json"


def write_stamp(output: Path, digest: str) -> None:
    """Stamp a file or folder that was just written."""
    _write(output, _stamp(output, digest))


def is_fresh(output: Path, digest: str) -> bool:
    """Whether an output was made from what `digest` stands for, and holds what it held then."""
    stamp = _read(output)
    return stamp is not None and stamp.digest == digest and _holds(output, stamp)


def is_damaged(output: Path) -> bool:
    """Whether a stamped output does not hold what it held when it was made."""
    stamp = _read(output)
    return stamp is not None and output.exists() and _sha256(output) != stamp.sha256


def intact(output: Path) -> Path:
    """Return an output that may be read; refuse a damaged one.

    The next start makes a damaged one again, until then no step reads it.
    """
    if is_damaged(output):
        with suppress(UserError):  # somebody else's folder
            stamp = _read(output) or Stamp("", "", "")
            _write(output, replace(stamp, digest=DAMAGED))
        raise UserError(
            f"{str(output)!r} is not what the workflow wrote: it was changed or damaged since; run"
            " again, which makes it again"
        )
    return output


def is_unchanged(output: Path) -> bool:
    """Whether an output has a stamp, and holds what it held then."""
    stamp = _read(output)
    return stamp is not None and _holds(output, stamp)


def renew(output: Path) -> None:
    """Note the state of an output that was only touched, so that it is not read to compare it."""
    stamp = _read(output)
    if stamp is not None and output.exists() and stamp.state != _state(output):
        now = _stamp(output, stamp.digest)
        if now.sha256 == stamp.sha256:
            _write(output, now)


def keep(output: Path, folder: Path, most: int) -> None:
    """Keep an unchanged output in a folder, as a link named by its digest; the last `most` stay.

    Raises:
        OSError: the file system has no such links.
    """
    stamp = _read(output)
    if stamp is None or not _holds(output, stamp):
        return
    kept = folder / f"{stamp.digest[:16]}{output.suffix}"
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.link(output, kept)
    write_stamp(kept, stamp.digest)
    stamps = sorted((folder / ".stamps").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    for file in stamps[:-most]:
        (folder / file.stem).unlink(missing_ok=True)
        file.unlink()


def ready_path(out: Path) -> Path:
    """Return where the trace of a shard is that was decoded ahead of its job."""
    return out.parent / ".ready" / out.name


def is_ready(out: Path, digest: str, max_error_share: float = 1.0) -> bool:
    """Whether the trace of a shard is ready for its job, without too many failed rows."""
    if not is_fresh(ready_path(out), digest):
        return False
    metadata = read_metadata(ready_path(out))
    return not too_many(metadata["failed"], metadata["rows"], max_error_share)


def make_ready(out: Path, digest: str) -> None:
    """Keep a trace ready until its run is merged.

    Snakemake deletes the traces of a job that fails, and of a group of which one job fails. A job
    that decodes shards of others can fail when its own shard is done.
    """
    ready = ready_path(out)
    ready.parent.mkdir(exist_ok=True)
    with suppress(OSError):  # the file system has no such links
        ready.unlink(missing_ok=True)
        os.link(out, ready)
        write_stamp(ready, digest)


def take_ready(out: Path, digest: str) -> None:
    """Put a trace that is ready in its place."""
    out.unlink(missing_ok=True)
    try:
        os.link(ready_path(out), out)
    except OSError:
        ready_path(out).replace(out)
    write_stamp(out, digest)


def forget_ready(out: Path) -> None:
    """Delete what was kept ready of a trace."""
    ready = ready_path(out)
    with suppress(OSError):  # there is none, or there are others
        stamp_path(ready).unlink(missing_ok=True)
        ready.unlink(missing_ok=True)
        stamp_path(ready).parent.rmdir()
        ready.parent.rmdir()


def _write(output: Path, stamp: Stamp) -> None:
    write_text(stamp_path(output), json.dumps(asdict(stamp)) + "\n")


def _read(output: Path) -> Stamp | None:
    try:
        return Stamp(**json.loads(stamp_path(output).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _holds(output: Path, stamp: Stamp) -> bool:
    return _state(output) == stamp.state != "" or _sha256(output) == stamp.sha256


def _stamp(output: Path, digest: str) -> Stamp:
    state = _state(output)  # before it is read: a change meanwhile makes another one
    return Stamp(digest, _sha256(output), state)


def _state(output: Path) -> str:
    return "" if output.is_dir() else file_state(output)


def _sha256(output: Path) -> str:
    if output.is_file():
        with output.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    total = hashlib.sha256()
    for file in sorted(output.rglob("*")):
        # Snakemake puts a hidden file into every folder that is an output.
        if file.is_file() and not file.name.startswith("."):
            total.update(f"{file.relative_to(output).as_posix()}\0{_sha256(file)}\n".encode())
    return total.hexdigest()
