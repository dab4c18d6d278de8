"""A progress bar with the time left and tokens per second; silent where there is no terminal."""

import time
from collections.abc import Iterable, Iterator

from adafuse.records import Result


def followed(
    stream: Iterable[tuple[int, Result]], total: int, *, hidden: bool = False
) -> Iterator[tuple[int, Result]]:
    """Yield what `stream` yields, and show how far it is."""
    from tqdm import tqdm

    start, tokens = time.perf_counter(), 0
    with tqdm(total=total, unit="prompt", disable=True if hidden else None) as bar:
        for index, result in stream:
            tokens += max(result.tokens, default=0)
            bar.set_postfix_str(speed(tokens, time.perf_counter() - start), refresh=False)
            bar.update()
            yield index, result


def speed(tokens: int, seconds: float) -> str:
    """Return tokens per second in words."""
    return f"{tokens / seconds:.1f} tokens/s" if seconds else ""
