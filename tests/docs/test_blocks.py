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
LANGUAGES = RUN | {"yaml", "toml", "json", "text"}
REASONS = ("hub models", "a GPU", "a network")
"""What no test can have; any other reason names the test file that runs the same."""


def name(block: Block) -> str:
    return f"{block.page.relative_to(ROOT)}:{block.line}"


def runnable(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language in RUN and block.reason is None]


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if runnable(p)], ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_in_order(page: Path, results: Scratch, tmp_path: Path) -> None:
    scratch = results.copy(tmp_path / "checkout")
    for block in runnable(page):
        done = scratch.run(block.language, block.text)
        said = f"{name(block)}\n{block.text}\n\n{done.stdout}{done.stderr}"
        assert done.returncode == 0, said


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
    commands = [block for block in BLOCKS if block.language in RUN]
    assert len([block for block in commands if block.reason is None]) > len(commands) / 2 > 10
