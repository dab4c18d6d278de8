"""Memory that runs out while examples are decoded."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from adafuse.errors import UserError


class TooManyRowsError(UserError):
    """So many examples at a time do not fit; fewer may."""


def out_of_memory(error: BaseException) -> bool:
    """Say whether memory ran out; what the CPU's allocator raises has no class of its own."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


@contextmanager
def memory_told(rows: int) -> Iterator[None]:
    """Turn running out of memory into a sentence that says what to change.

    Args:
        rows: how many examples are decoded at a time.

    Raises:
        TooManyRowsError: memory ran out.
    """
    try:
        yield
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        raise TooManyRowsError(_too_much(rows, str(error))) from error


def release() -> None:
    """Give back what nothing refers to any more, on the devices as well."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _too_much(rows: int, error: str) -> str:
    reason = " ".join(error.split("\n")[0].split())[:120]
    return (
        f"{rows} examples at a time are too many for the memory ({reason}); lower batch_size, set"
        " it to auto, or give the models other or more devices, or a smaller dtype"
    )
