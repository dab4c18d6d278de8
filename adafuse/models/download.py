"""Downloading models from the hub, whole and at one commit, without loading them."""

import sys
from pathlib import Path

from adafuse.errors import UserError

WANTED = ("*.json", "*.jinja", "*.model", "*.safetensors", "*.txt")
"""What loading a model may read: its configuration, its tokenizer and its weights."""

UNWANTED = ("consolidated*", "*/*")
"""The same weights once more, as some publishers add them."""


def download(path: str, revision: str | None) -> Path:
    """Bring a hub model into the cache of this machine, as far as it is not there.

    Args:
        path: hub id.
        revision: commit, tag or branch; the default branch without one.

    Returns:
        The folder of its files, which has the name of the commit.

    Raises:
        UserError: it cannot be downloaded, or has no safetensors weights.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        folder = snapshot_download(
            path, revision=revision, allow_patterns=list(WANTED), ignore_patterns=list(UNWANTED)
        )
    except (OSError, ValueError, HfHubHTTPError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"model {path!r} (revision {revision}) cannot be downloaded ({reason}); check its name"
            " and the network, and HF_TOKEN for a gated one"
        ) from None
    return with_weights(Path(folder), path)


def with_weights(folder: Path, path: str) -> Path:
    """Return the folder of a model, if it can be loaded from there.

    Raises:
        UserError: it holds no safetensors weights.
    """
    if not any(folder.glob("*.safetensors")):
        raise UserError(
            f"model {path!r} has no safetensors weights at commit {folder.name}; convert them, or"
            " name a revision that has some"
        )
    return folder
