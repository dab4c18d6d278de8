"""The site has every page, and its reference names what there is."""

import re
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from .markdown import PAGES, ROOT, prose

NAMES = [
    name
    for page in ROOT.glob("docs/reference*.md")
    for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
]


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without the functions that its tags name."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def test_every_page_is_in_the_navigation_of_the_site_once() -> None:
    sections = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"]
    entries = [entry for section in sections for entry in next(iter(section.values()))]
    paths = [next(iter(e.values())) if isinstance(e, dict) else e for e in entries]
    pages = {str(page.relative_to(ROOT)) for page in PAGES}
    others = {"CHANGELOG.md", "adafuse/toy/README.md", "docs/walkthrough.ipynb.md"}
    assert sorted(paths) == sorted(pages | others)


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_names_what_can_be_imported_and_has_a_docstring(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    described = getattr(import_module(module), attribute, None) or import_module(name)
    assert described.__doc__


def test_the_reference_has_every_public_name() -> None:
    import adafuse

    public = {f"adafuse.{name}" for name in adafuse.__all__} - {"adafuse.__version__"}
    assert public <= set(NAMES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lists_and_tables_are_such_on_the_site_too(page: Path) -> None:
    """It needs an empty line before a list, four spaces before a nested one, and whole tables."""
    lines = ["", *prose(page).split("\n"), ""]
    item, row = re.compile(r"([*-]|\d+\.) "), re.compile(r"\|")
    for before, line, after in zip(lines, lines[1:], lines[2:], strict=False):
        if item.match(line):
            assert not before or before[0] == " " or item.match(before), line
        if row.match(line) and not row.match(before):
            assert not before and re.match(r"\|[-:| ]+$", after), line
        assert not re.match(r" {1,3}([*-]|\d+\.) ", line), line
