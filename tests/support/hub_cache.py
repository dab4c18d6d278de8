"""Models in the layout of the hub's cache, so that they are found without a hub."""

import shutil
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def cached_model(cache: Path, name: str, source: str, commit: str = COMMIT) -> Path:
    """Put a model folder into a cache as the default branch of a hub model."""
    store = cache / f"models--{name.replace('/', '--')}"
    snapshot = store / "snapshots" / commit
    shutil.copytree(source, snapshot)
    (store / "refs").mkdir(exist_ok=True)
    (store / "refs/main").write_text(commit)
    return snapshot
