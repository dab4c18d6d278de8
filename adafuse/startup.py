"""The start of a process: large packages are imported in less time."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def fast_imports() -> Iterator[None]:
    """Import large packages in less time: nothing is garbage-collected meanwhile.

    What exists at the end never is: for the process of a command, not for a library.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
