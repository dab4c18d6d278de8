"""Every link between files of the project leads somewhere."""

from pathlib import Path

import pytest
import yaml

from .markdown import PAGES, ROOT, anchors, links

EVERYWHERE = sorted([*PAGES, ROOT / "CHANGELOG.md", *(ROOT / "adafuse/toy").rglob("README.md")])


def target(page: Path, link: str) -> tuple[Path, str]:
    """The file and the anchor that a link of a page leads to."""
    path, _, anchor = link.partition("#")
    return ((page.parent / path).resolve() if path else page), anchor


@pytest.mark.parametrize("page", EVERYWHERE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_of_the_project_and_to_a_heading(page: Path) -> None:
    for link in links(page):
        if link.startswith(("http://", "https://", "../../actions/")):  # the last ones at the host
            continue
        file, anchor = target(page, link)
        assert file.is_relative_to(ROOT), link
        assert file.exists(), f"{link}: there is no such file"
        if anchor:
            assert anchor in anchors(file), f"{link}: {file.name} has no such heading"


def test_the_index_of_the_documentation_names_every_page() -> None:
    index = ROOT / "docs/README.md"
    linked = {target(index, link)[0] for link in links(index) if "://" not in link}
    assert {page for page in PAGES if page not in {index, ROOT / "README.md"}} <= linked


def test_the_first_page_leads_to_the_index() -> None:
    assert "docs/README.md" in links(ROOT / "README.md")


def test_every_toy_model_has_a_card_that_the_hub_reads() -> None:
    folders = [path for path in (ROOT / "adafuse/toy/models").iterdir() if path.is_dir()]
    assert len(folders) == 6
    for folder in folders:
        front = yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])
        assert {"license", "library_name", "pipeline_tag", "language", "tags"} <= front.keys()
