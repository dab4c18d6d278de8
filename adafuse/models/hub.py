"""Reading a model's files from a folder or the hub; what fails becomes one sentence."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adafuse.errors import UserError
from adafuse.models.weight_files import REFUSED

if TYPE_CHECKING:
    from adafuse.models.sources import ModelSource


def from_hub(factory: Any, source: "ModelSource", **settings: Any) -> Any:
    """Load something of a model, running code of its own only if that is trusted.

    Raises:
        UserError: it cannot be loaded.
    """
    # Otherwise transformers looks for converted weights in pull requests of the hub's bot.
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")
    with failure_told(source):
        return factory.from_pretrained(
            source.path,
            revision=source.revision,
            trust_remote_code=source.trust_remote_code,
            **settings,
        )


@contextmanager
def failure_told(source: "ModelSource") -> Iterator[None]:
    """Turn what libraries raise for a model that they cannot load into a `UserError`."""
    try:
        yield
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise UserError(_sentence(str(error), source)) from error


def check_path(path: str) -> None:
    """Tell a folder that is missing from a hub id, so that nobody waits for a download.

    Raises:
        UserError: no model folder, and nothing that could be a hub id.
    """
    folder = Path(path)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UserError(f"model {path!r} has no config.json; give a Hugging Face model folder")
        return
    looks_local = path.startswith((".", "/", "~")) or path.count("/") != 1 or folder.exists()
    if looks_local:
        raise UserError(f"model {path!r} is not a folder; give a model folder or a hub id org/name")


_CODE = (
    "needs code of its own to run, and has not been trusted with that; read the code, then set"
    " trust_remote_code for this model"
)


def _sentence(error: str, source: "ModelSource") -> str:
    # transformers has no classes of errors for these two.
    if "trust_remote_code=True" in error and not source.trust_remote_code:
        return f"model {source.path!r} {_CODE}"
    if "use_safetensors=True" in error and not source.allow_pickle:
        return f"model {source.path!r} {REFUSED}"
    reason = error.strip().split("\n")[0]
    where = "" if Path(source.path).is_dir() else ", which is no folder here,"
    offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
    return f"model {source.path!r}{where} cannot be loaded{offline}: {reason}"
