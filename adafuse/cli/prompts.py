"""Reading prompts: from a file, from standard input, or from the command line itself."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

from adafuse.errors import UserError
from adafuse.options import Identifier, parse

STANDARD_INPUT = Path("-")
_FORM = '{"id": ..., "prompt": ...}'


class PromptRow(BaseModel):
    """One prompt and the id that its result is found by."""

    model_config = ConfigDict(strict=True, frozen=True)

    id: Identifier
    prompt: str

    @field_validator("prompt")
    @classmethod
    def _is_not_empty(cls, prompt: str) -> str:
        if not prompt.strip():
            raise ValueError("must hold some text")
        return prompt


def find_prompts(file: Path | None, texts: Sequence[str]) -> list[PromptRow]:
    """Return the prompts of a file ("-" is standard input), or else `texts`, or else what is piped.

    In `texts`, a backslash and an n are a line break; a piped text is one prompt without the line
    break at its end.
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
    return [
        parse(PromptRow, {"id": number, "prompt": text}, "--prompt")
        for number, text in enumerate(found, 1)
    ]


def read_prompts(path: Path) -> list[PromptRow]:
    """Read JSON lines {"id", "prompt"} with different ids; errors name the line."""
    name = "standard input" if path == STANDARD_INPUT else str(path)
    prompts: dict[str, PromptRow] = {}
    for number, line in enumerate(_read(path, name).split("\n"), 1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        prompt = parse(PromptRow, _object(line, where), where)
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


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{where}: broken JSON ({error.msg} at column {error.colno}); write {_FORM}"
        ) from None
    if not isinstance(row, dict):
        raise UserError(f"{where}: {line.strip()[:40]!r} is not an object {_FORM}")
    return row
