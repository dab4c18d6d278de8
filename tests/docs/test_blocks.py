"""Every command and every piece of Python in the documentation does what it says."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from .markdown import PAGES, ROOT, Block, blocks
from .scratch import Scratch

BLOCKS = [block for page in PAGES for block in blocks(page)]
RUN = {"sh", "python"}
LANGUAGES = RUN | {"yaml", "toml", "json", "text", "console"}
REASONS = ("hub models", "a GPU", "a network", "a browser", "a vLLM server")
"""What no test can have; any other reason names the test file that runs the same."""


def name(block: Block) -> str:
    return f"{block.page.relative_to(ROOT)}:{block.line}"


def runnable(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language in RUN and block.reason is None]


@pytest.mark.soak
@pytest.mark.parametrize("page", [p for p in PAGES if runnable(p)], ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_in_order(page: Path, results: Scratch, tmp_path: Path) -> None:
    scratch, printed = results.copy(tmp_path / "checkout"), ""
    for block in blocks(page):
        if block.output:
            assert_alike(block.text, printed)
        elif block.language in RUN and block.reason is None:
            done = scratch.run(block.language, block.text)
            said = f"{name(block)}\n{block.text}\n\n{done.stdout}{done.stderr}"
            assert done.returncode == 0, said
            printed = done.stdout


def assert_alike(shown: str, printed: str) -> None:
    """Output is as the page shows it: times may be others, and numbers of 3 decimals rounded."""
    expected, found = (re.split(r"(\d+\.\d+)", text.strip()) for text in (shown, printed))
    assert expected[::2] == found[::2], printed
    for one, other, behind in zip(expected[1::2], found[1::2], expected[2::2], strict=True):
        assert behind.startswith(" s") or float(one) == pytest.approx(float(other), abs=0.005)


@pytest.mark.parametrize("printed", ["a 0.310 b; 0.2 s", "a 0.302 c; 0.2 s", "a 0.302 b"])
def test_output_of_another_number_or_word_is_another_one(printed: str) -> None:
    assert_alike("a 0.302 b; 9.7 s\n", "a 0.304 b; 0.2 s")
    with pytest.raises(AssertionError):
        assert_alike("a 0.302 b; 9.7 s\n", printed)


def test_every_block_says_its_language_and_begins_its_lines() -> None:
    assert not [name(block) for block in BLOCKS if block.language not in LANGUAGES]
    assert not [name(block) for block in BLOCKS if block.indent]


def test_a_block_that_is_not_run_names_a_test_or_what_no_test_can_have() -> None:
    for block in BLOCKS:
        if block.reason is not None:
            files = re.findall(r"tests/[\w/]+\.py", block.reason)
            assert files or block.reason in REASONS, f"{name(block)}: {block.reason}"
            assert all((ROOT / file).is_file() for file in files), f"{name(block)}: {files}"


def test_every_mark_of_a_block_that_is_not_run_stands_right_before_a_block() -> None:
    for page in PAGES:
        marks = re.findall("^<!-- not run:", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(marks) == sum(block.reason is not None for block in blocks(page)), page


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language in {"yaml", "toml"}], ids=name)
def test_settings_can_be_read(block: Block) -> None:
    load = yaml.safe_load if block.language == "yaml" else tomllib.loads
    assert load(block.text)


def test_most_blocks_are_run() -> None:
    commands = [b for b in BLOCKS if b.language in RUN and b.page.name != "command-line.md"]
    assert len([block for block in commands if block.reason is None]) > len(commands) / 2 > 10
