"""Reading prompts: from a file, from standard input, or from the command line itself."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adafuse.errors import UserError

STANDARD_INPUT = Path("-")
_FORM = '{"id": ..., "prompt": ...}'


@dataclass(frozen=True, slots=True)
class PromptRow:
    """One prompt and the id that its result is found by."""

    id: str
    text: str


def find_prompts(file: Path | None, texts: Sequence[str]) -> list[PromptRow]:
    """Return the prompts of a file ("-" is standard input), or else `texts`, or else what is piped.

    In `texts`, a backslash and an n are a line break; a piped text is one prompt without the line
    break at its end.

    Raises:
        UserError: two of these, or none, or a prompt that cannot be used.
    """
    if file is not None and texts:
        raise UserError("--prompts and --prompt are both given; give one of them")
    if file is not None:
        return read_prompts(file)
    if texts:
        found = [text.replace("\\n", "\n") for text in texts]
    elif sys.stdin.isatty():
        raise UserError("no prompt was given; add --prompt TEXT or --prompts FILE, or pipe one in")
    else:
        text = _read(STANDARD_INPUT, "standard input")
        if not text.strip():
            raise UserError("standard input holds no prompt; pipe one in, or add --prompt TEXT")
        found = [text.removesuffix("\n").removesuffix("\r")]
    for text in found:
        if not text.strip():
            raise UserError(f"the prompt is {text!r}; give a text that is not empty")
    return [PromptRow(str(number), text) for number, text in enumerate(found, 1)]


def read_prompts(path: Path) -> list[PromptRow]:
    """Read JSON lines {"id", "prompt"}; errors name the line.

    Raises:
        UserError: no such file, broken JSON, a missing or doubled id, an empty prompt.
    """
    name = "standard input" if path == STANDARD_INPUT else str(path)
    prompts: dict[str, PromptRow] = {}
    for number, line in enumerate(_read(path, name).split("\n"), 1):
        where = f"{name}, line {number}"
        if not line.strip():
            continue
        prompt = _parse(line, where)
        if prompt.id in prompts:
            raise UserError(
                f"{where}: id {prompt.id!r} occurs twice; give every prompt one of its own"
            )
        prompts[prompt.id] = prompt
    if not prompts:
        raise UserError(f"{name} holds no prompt; write one {_FORM} per line")
    return list(prompts.values())


def _read(path: Path, name: str) -> str:
    if path != STANDARD_INPUT and not path.is_file():
        raise UserError(f"prompts file {name!r} does not exist; check its path")
    try:
        return (sys.stdin.buffer.read() if path == STANDARD_INPUT else path.read_bytes()).decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{name} is not UTF-8 text ({error}); save it as UTF-8") from None


def _parse(line: str, where: str) -> PromptRow:
    try:
        row: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{where}: broken JSON ({error.msg} at column {error.colno}); write one"
            f" {_FORM} per line"
        ) from None
    if not isinstance(row, dict):
        raise UserError(f"{where}: {line.strip()[:40]!r} is not an object {_FORM}")
    for key in ("id", "prompt"):
        if key not in row:
            raise UserError(f'{where}: the key "{key}" is missing; write {_FORM}')
    unique = row["id"]
    if not isinstance(unique, str | int) or isinstance(unique, bool) or unique == "":
        raise UserError(f"{where}: id is {unique!r}; give every prompt a string or number as id")
    text = row["prompt"]
    if not isinstance(text, str) or not text.strip():
        raise UserError(f"{where}: prompt is {text!r}; give a text that is not empty")
    return PromptRow(str(unique), text)
