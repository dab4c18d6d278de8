"""What a fork server loads before the first job, and what its children run."""

import contextlib
import importlib
import os
from collections.abc import Sequence

import torch
from transformers import AutoConfig

import adafuse.ensemble  # noqa: F401  (loaded for the children)
from adafuse.cli.main import main as command_line


def preload(models: Sequence[str]) -> None:
    """Import the code of the architectures of some model folders; no weights."""
    for path in models:
        # What is wrong with a model is for the job to say that uses it.
        with contextlib.suppress(OSError, ValueError, ImportError):
            kind = AutoConfig.from_pretrained(path, trust_remote_code=False).model_type
            importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")


def run_command_line() -> int:
    """Run `adafuse` on `sys.argv` and return its exit status."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    try:
        command_line()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
