"""How results reach a terminal or a pipe."""

import json
import math
import sys
import time
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

import typer

from adafuse.records import Result


def echo_json(value: Any) -> None:
    """Print a value as indented JSON."""
    typer.echo(json.dumps(plain(value), indent=2, ensure_ascii=False))


def json_line(value: Any) -> str:
    """Return a value as one line of JSON."""
    return json.dumps(plain(value), ensure_ascii=False)


def plain(value: Any) -> Any:
    """Return a value with null for numbers that are not finite, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def harmless(text: str) -> str:
    """Return a text whose control characters, escape for one, do nothing to a terminal."""
    return "".join(c if c in "\n\t" or unicodedata.category(c) != "Cc" else _spelt(c) for c in text)


def one_line(text: str) -> str:
    """Return a text as one line that does nothing to a terminal."""
    return harmless(text).replace("\n", "\\n").replace("\t", "\\t")


def write(text: str) -> None:
    """Write a part of a text at once; as it is, unless it goes to a terminal."""
    sys.stdout.write(harmless(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def _spelt(character: str) -> str:
    return character.encode("unicode_escape").decode()


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
