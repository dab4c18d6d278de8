"""The messages that the page on troubleshooting explains are those of the code."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from .markdown import ROOT

PAGE = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)


@cache
def texts() -> list[str]:
    """All texts of the package, with … in place of each value."""
    return [*_texts()]


def _texts() -> Iterator[str]:
    for file in (ROOT / "adafuse").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (p.value if isinstance(p, ast.Constant) else "…" for p in node.values)
                yield "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.sub("%[sd]", "…", node.value)


@pytest.mark.parametrize("message", QUOTED)
def test_a_message_is_quoted_as_the_code_writes_it(message: str) -> None:
    assert any(message.removesuffix("…") in text for text in texts())


def test_the_page_explains_messages_of_every_section() -> None:
    sections = PAGE.split("\n## ")[1:-1]
    assert len(QUOTED) >= 15
    assert all(sum(quoted in section for quoted in QUOTED) >= 3 for section in sections)
