"""Reading prompts: JSON lines {"id", "prompt"}, refused with the line where something is wrong."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adafuse.errors import UserError


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt and the id that its result is found by."""

    id: str
    text: str


def read_prompts(path: Path) -> list[Prompt]:
    """Read a prompts file.

    Raises:
        UserError: no such file, broken JSON, a missing or doubled id, an empty prompt.
    """
    if not path.is_file():
        raise UserError(f"prompts file {str(path)!r} does not exist")
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error}); save it as UTF-8") from None
    prompts: dict[str, Prompt] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            prompt = _prompt(line, f"{path}, line {number}")
            if prompt.id in prompts:
                raise UserError(f"{path}, line {number}: id {prompt.id!r} occurs twice")
            prompts[prompt.id] = prompt
    if not prompts:
        raise UserError(f'{path} holds no prompt; write one {{"id": ..., "prompt": ...}} per line')
    return list(prompts.values())


def _prompt(line: str, where: str) -> Prompt:
    try:
        row: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: broken JSON ({error.msg} at column {error.colno})") from None
    if not isinstance(row, dict):
        raise UserError(f'{where}: {line.strip()[:40]!r} is no object {{"id": ..., "prompt": ...}}')
    unique = row.get("id")
    if not isinstance(unique, str | int) or isinstance(unique, bool) or unique == "":
        raise UserError(f"{where}: id is {unique!r}; give every prompt a string or number as id")
    text = row.get("prompt")
    if not isinstance(text, str) or not text.strip():
        raise UserError(f"{where}: prompt is {text!r}; give a text that is not empty")
    return Prompt(str(unique), text)
