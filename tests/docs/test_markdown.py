"""How the tests of the documentation read Markdown."""

from pathlib import Path

import pytest

from .markdown import PAGES, ROOT, Block, anchors, blocks, links, wrapped_lines

TEXT = """# A `b` (c): d
See [x](y.md#z) and [w](#q), not `[code](no.md)`.

<!-- not run: a network -->
```sh
one
two [no](no.md)
```

```python
print(1)
```
## A b c d
## Twice
## Twice
"""


def test_blocks_links_and_headings_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(TEXT)
    first, second = blocks(page)
    assert first == Block(page, 5, "sh", "one\ntwo [no](no.md)", "a network")
    assert second == Block(page, 10, "python", "print(1)")
    assert links(page) == ["y.md#z", "#q"]
    assert anchors(page) == {"a-b-c-d", "a-b-c-d-1", "twice", "twice-1"}


WRAPPED = """A line
goes on.

- An item
  goes on
- another
    - and one within

        code
        code
| a | b |
| - | - |
```sh
one
two
```
"""


def test_lines_that_go_on_are_found_outside_of_code_and_tables() -> None:
    assert wrapped_lines(WRAPPED) == [2, 5]


@pytest.mark.parametrize(
    "page",
    [*PAGES, ROOT / "CHANGELOG.md", ROOT / "adafuse/toy/README.md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_paragraph_is_one_line(page: Path) -> None:
    assert not wrapped_lines(page.read_text(encoding="utf-8")), (
        "one line for each, see CONTRIBUTING"
    )
