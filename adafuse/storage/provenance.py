"""Where a result comes from: the state of the source code, and the machine."""

import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any


def this_machine() -> dict[str, Any]:
    """Return where this process runs, a Slurm node under Slurm's name for it."""
    torch: Any = sys.modules.get("torch")  # not imported for this: the models have done so
    cards = range(torch.cuda.device_count()) if torch else ()
    return {
        "host": os.environ.get("SLURMD_NODENAME") or platform.node(),
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "slurm_job": os.environ.get("SLURM_JOB_ID"),
        "gpus": [torch.cuda.get_device_name(card) for card in cards],
    }


@cache
def source_commit() -> dict[str, Any]:
    """Return the commit of this package's checkout, and whether tracked files were changed."""
    root = Path(__file__).resolve().parents[2]
    # An installed package may lie inside somebody else's checkout, for instance in its .venv.
    if not (root / ".git").exists():
        return {"commit": None, "dirty": None}
    status = _git(root, "status", "--porcelain", "--untracked-files=no")
    dirty = None if status is None else bool(status)
    return {"commit": _git(root, "rev-parse", "HEAD") or None, "dirty": dirty}


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
