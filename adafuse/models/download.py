"""Downloading models from the hub, whole and at one commit, without loading them."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adafuse.errors import UserError
from adafuse.models.weight_files import PICKLED, REFUSED, SAFE, pickled_files, safe_files

SETTINGS = ("*.json", "*.jinja", "*.model", "*.txt")
"""Configuration and tokenizer."""

CODE = ("*.py",)
"""What runs only if it is trusted."""

UNWANTED = ("consolidated*", "*/*")
"""The same weights once more, as some publishers add them."""


@dataclass(frozen=True, slots=True)
class HubModel:
    """A hub id, a commit, tag or branch (the default branch without one), and what may be read."""

    path: str
    revision: str | None
    trust_remote_code: bool = False
    allow_pickle: bool = False

    @property
    def wanted(self) -> tuple[str, ...]:
        """What loading may read, if there are safetensors weights."""
        return (*SETTINGS, SAFE, *(CODE if self.trust_remote_code else ()))


def download(model: HubModel) -> Path:
    """Bring a hub model into the cache of this machine, as far as it is not there.

    Its code comes along only if it is trusted, pickled weights only if they are allowed and there
    are no others.

    Returns:
        The folder of its files, which has the name of the commit.

    Raises:
        UserError: it cannot be downloaded, or has no weights that may be read.
    """
    folder = _snapshot(model.path, model.revision, model.wanted)
    if model.allow_pickle and not safe_files(folder):
        folder = _snapshot(model.path, folder.name, PICKLED)
    _check_weights(folder, model)
    if model.trust_remote_code:
        for path in code_elsewhere(folder) - {model.path}:
            _snapshot(path, None, CODE)
    return folder


def code_elsewhere(folder: Path) -> set[str]:
    """Return the hub ids of other models whose code a model's files name as theirs.

    Raises:
        UserError: one of the files cannot be read.
    """
    found: set[str] = set()
    for file in (folder / "config.json", folder / "tokenizer_config.json"):
        try:
            settings = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
            classes = json.dumps(settings.get("auto_map"))
        except (ValueError, AttributeError):
            raise UserError(f"{str(file)!r} is no JSON object; download it again") from None
        # A class is named file.Class, or org/name--file.Class.
        found.update(re.findall(r'"([^"]+)--', classes))
    return found


def _snapshot(path: str, revision: str | None, wanted: Sequence[str]) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        folder = snapshot_download(
            path, revision=revision, allow_patterns=list(wanted), ignore_patterns=list(UNWANTED)
        )
    except (OSError, ValueError, HfHubHTTPError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"model {path!r} (revision {revision}) cannot be downloaded ({reason}); check its name"
            " and the network, and HF_TOKEN for a gated one"
        ) from None
    return Path(folder)


def _check_weights(folder: Path, model: HubModel) -> None:
    if safe_files(folder):
        return
    named = f"model {model.path!r} (commit {folder.name})"
    if not model.allow_pickle:
        raise UserError(f"{named} {REFUSED}, or name a revision that has safetensors")
    if not pickled_files(folder):
        raise UserError(f"{named} has no weights that can be loaded; name a revision that has some")
