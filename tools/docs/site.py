"""A hook of MkDocs: the site has the layout of the repository, so links work in both.

Pages outside of docs/ are part of it, and the files that pages link to: source code, YAML and the
notebook, each as a page.
"""

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
OUTSIDE = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "config/README.md",
    "adafuse/toy/README.md",
    "tools/docs/site.css",
)
SEARCH_BOOST = {
    "CHANGELOG.md": 0.3,
    "docs/controller-log.md": 0.3,
    "docs/methods.md": 2,
    "docs/reference.md": 2,
}
"""Whether a page comes sooner or later than others in the results of a search; 1 by default."""
_TO_FILE = re.compile(r"(?<=\]\()(?P<path>[^()\s:]+\.(?:py|ya?ml|cff|ipynb)|LICENSE)(?=\))")
_BADGE = re.compile(r"^\[!\[[^]]*\]\([^)]*\)\]\([^)]*\)\n", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the theme's files, the pages, their pictures, and what they link to."""
    inside = [path for path in (ROOT / "docs").rglob("*") if path.is_file()]
    shown = [ROOT / name for name in OUTSIDE] + inside
    pages = [path for path in shown if path.suffix == ".md"]
    linked = {
        (page.parent / found["path"]).resolve()
        for page in pages
        for found in _TO_FILE.finditer(_BADGE.sub("", page.read_text(encoding="utf-8")))
    }
    return Files(
        [file for file in files if file.src_dir != config.docs_dir]
        + [_file(path, config) for path in shown if path not in linked]
        + [_as_page(path, config) for path in sorted(linked)]
    )


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links of files to their pages, and leave out badges, which other hosts draw."""
    if page.file.src_uri in SEARCH_BOOST:
        page.meta["search"] = {"boost": SEARCH_BOOST[page.file.src_uri]}
    return _TO_FILE.sub(r"\g<path>.md", _BADGE.sub("", markdown))


def _file(path: Path, config: MkDocsConfig) -> File:
    return File(_name(path), str(ROOT), config.site_dir, config.use_directory_urls)


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _as_page(path: Path, config: MkDocsConfig) -> File:
    made = _notebook(path) if path.suffix == ".ipynb" else _source(path)
    file = File.generated(config, f"{_name(path)}.md", content=made)
    file.inclusion = InclusionLevel.NOT_IN_NAV
    return file


def _notebook(path: Path) -> str:
    return "\n\n".join(map(_cell, json.loads(path.read_text(encoding="utf-8"))["cells"]))


def _source(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    language = {".py": "python", "": "text"}.get(path.suffix, "yaml")
    return f"---\nsearch: {{exclude: true}}\n---\n# {_name(path)}\n\n{_block(text, language)}"


def _cell(cell: dict[str, Any]) -> str:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return text
    shown = [_output(output) for output in cell["outputs"]]
    return "\n\n".join([_block(text, "python"), *shown])


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "text/html" in data:
        return f'<div class="notebook-output">{"".join(data["text/html"])}</div>'
    return _block("".join(output.get("text") or data["text/plain"]), "text")


def _block(text: str, language: str) -> str:
    return f"````{language}\n{text.rstrip()}\n````"
