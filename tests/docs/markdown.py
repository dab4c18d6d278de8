"""Markdown as the tests of the documentation read it: blocks of code, links and headings."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "config/README.md")),
        *ROOT.glob("docs/*.md"),
    ]
)

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)$")
_OUTPUT = "<!-- output -->"
_NOT_RUN = re.compile(r"^<!-- not run: (?P<reason>.+) -->$")
_LINK = re.compile(r"\[[^][]*\]\(([^()\s]+)\)")
_NO_PROSE = r"#|\||<!--|>|:::|\{[{%]|-{3}|\[!\["
_BEGINS = re.compile(rf" *({_NO_PROSE}|[-*] |\d+\. |$)")
"""A line that belongs to no paragraph or list item, or begins one."""
_ALONE = re.compile(rf" *({_NO_PROSE}|$)| {{4}}(?! *([-*]|\d+\.) )")
"""A line that no paragraph goes on after, among them indented code."""


@dataclass(frozen=True)
class Block:
    """A block of code: where it begins, and why it is not run, if it is not.

    An `output` is what the block before it prints.
    """

    page: Path
    line: int
    language: str
    text: str
    reason: str | None = None
    indent: int = 0
    output: bool = False


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page in order."""
    lines, start, opened = page.read_text(encoding="utf-8").split("\n"), 0, None
    for number, line in enumerate(lines, 1):
        if not (fence := _FENCE.match(line)):
            continue
        if opened is None:
            start, opened = number, fence
            continue
        before, text = lines[start - 2].strip(), "\n".join(lines[start : number - 1])
        reason = marked["reason"] if (marked := _NOT_RUN.match(before)) else None
        indent, output = len(opened["indent"]), before == _OUTPUT
        yield Block(page, start, opened["language"], text, reason, indent, output)
        opened = None
    assert opened is None, f"{page}:{start}: a block that does not end"


def prose(page: Path) -> str:
    """Return a page without its blocks of code and without code in lines."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", "``", text)


def wrapped_lines(text: str) -> list[int]:
    """Return the numbers of the lines on which a paragraph or list item goes on."""
    text = re.sub(
        r"^ *```.*?^ *```$", lambda code: "\n" * code[0].count("\n"), text, flags=re.S | re.M
    )
    lines = enumerate(pairwise(text.split("\n")), 2)
    return [n for n, (above, line) in lines if not _ALONE.match(above) and not _BEGINS.match(line)]


def links(page: Path) -> list[str]:
    """Return the targets of all links and images of a page."""
    return _LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    for heading in re.findall(r"^#{1,6} (.+)$", text, re.M):
        words = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        number = sum(each == words or each.startswith(f"{words}-") for each in found)
        found.add(f"{words}-{number}" if words in found else words)
    return found
