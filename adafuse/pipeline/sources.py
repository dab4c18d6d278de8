"""The file that holds a benchmark's rows: the user's own, or a dataset's, fetched once."""

import hashlib
import json
import logging
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from adafuse.benchmarks.fields import PLAIN, Fields
from adafuse.errors import UserError
from adafuse.pipeline.config import Config, SourceConfig
from adafuse.pipeline.identity import model_identity

logger = logging.getLogger(__name__)

_FORM = 1
"""Counted up when fetched rows are written otherwise, so that they are fetched again."""


class UnavailableSourceError(UserError):
    """A dataset that cannot be loaded here and now; a plan without it is still of use."""


def source_file(config: Config, benchmark: str) -> Path:
    """Return the file of a benchmark's rows; a dataset that was not fetched yet is.

    Raises:
        UnavailableSourceError: a dataset of the hub cannot be loaded.
        UserError: a folder's cannot, or has not the rows that it should.
    """
    source = config.benchmarks[benchmark].source
    if source.file is not None:
        return Path(source.file)
    path = Path(config.results) / "sources" / f"{_name(source)}-{_key(source)}.jsonl"
    if not path.is_file():
        _check_pinned(source, f"benchmarks.{benchmark}")
        _fetch(source, path)
    return path


def _check_pinned(source: SourceConfig, owner: str) -> None:
    if source.revision is None and not Path(str(source.dataset)).is_dir():
        raise UnavailableSourceError(
            f"{owner}: hub dataset {source.dataset!r} has no revision; pin it with source:"
            " {revision: COMMIT}, 40 hexadecimal digits from the history of its files on the hub"
        )


def source_fields(source: SourceConfig) -> Fields:
    """Return the fields of the file that `source_file` names."""
    return Fields(**source.fields.model_dump()) if source.file is not None else PLAIN


def _name(source: SourceConfig) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", Path(str(source.dataset)).name)


def _key(source: SourceConfig) -> str:
    """Return a digest of everything that decides the rows, a folder's content included."""
    content = model_identity(str(source.dataset), None).content
    parts = [_FORM, content, source.model_dump(exclude={"dataset"} if content else set())]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _fetch(source: SourceConfig, path: Path) -> None:
    """Fetch in a process of its own, so that planning never loads `datasets`."""
    logger.warning("fetching dataset %s, once; this may take minutes", source.dataset)
    run = "from adafuse.cli.main import main; main()"
    step = ["step", "fetch", "--source", source.model_dump_json(), "--out", str(path)]
    environment = {**os.environ, **({} if _hub_answers() else {"HF_HUB_OFFLINE": "1"})}
    done = subprocess.run(
        [sys.executable, "-c", run, *step], capture_output=True, text=True, env=environment
    )
    if done.returncode:
        said = done.stderr.strip().split("\n")[-1]
        kind = UserError if Path(str(source.dataset)).is_dir() else UnavailableSourceError
        raise kind(said.removeprefix("error: ") or f"{source.dataset!r} cannot be fetched")


@cache
def _hub_answers() -> bool:
    """Ask once: without a network every dataset would be tried again and again for half a minute.

    What was downloaded earlier is found offline, too.
    """
    from huggingface_hub.constants import ENDPOINT

    try:
        with urlopen(ENDPOINT, timeout=5):
            return True
    except HTTPError:
        return True
    except OSError:
        return False
