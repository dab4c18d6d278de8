"""CITATION.cff is of the form that the Citation File Format 1.2.0 asks for."""

import tomllib
from pathlib import Path
from typing import Annotated, Literal

import pytest
import yaml
from pydantic import AnyHttpUrl, BaseModel, ConfigDict, Field, ValidationError

from adafuse.version import __version__

ROOT = Path(__file__).parents[2]

Text = Annotated[str, Field(min_length=1)]


class Part(BaseModel):
    """Only keys that the format has, as far as we use them."""

    model_config = ConfigDict(extra="forbid", alias_generator=lambda name: name.replace("_", "-"))


class Person(Part):
    family_names: Text
    given_names: Text
    orcid: AnyHttpUrl | None = None


class Entity(Part):
    name: Text


class Identifier(Part):
    type: Literal["doi", "url", "swh", "other"]
    value: Text
    description: Text


class Reference(Part):
    type: Literal["article", "software", "generic", "conference-paper", "report"]
    title: Text
    authors: Annotated[list[Person | Entity], Field(min_length=1)]
    year: int
    month: Annotated[int, Field(ge=1, le=12)]
    journal: Text
    url: AnyHttpUrl
    identifiers: Annotated[list[Identifier], Field(min_length=1)]


class Citation(Part):
    cff_version: Literal["1.2.0"]
    message: Text
    title: Text
    abstract: Text
    type: Literal["software", "dataset"]
    authors: Annotated[list[Person | Entity], Field(min_length=1)]
    version: Text
    license: Text
    keywords: Annotated[list[Text], Field(min_length=1)]
    preferred_citation: Reference


def read() -> dict[str, object]:
    return yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_the_file_is_of_the_form() -> None:
    assert Citation.model_validate(read())


def test_a_file_with_a_misspelt_key_or_without_authors_is_not() -> None:
    for change in ({"autors": []}, {"authors": []}, {"cff-version": "1.3"}):
        with pytest.raises(ValidationError):
            Citation.model_validate(read() | change)


def test_it_names_this_version_and_licence_and_the_paper() -> None:
    citation = Citation.model_validate(read())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (citation.version, citation.license) == (__version__, project["license"])
    paper = yaml.safe_load((ROOT / "config/published.yaml").read_text())["source"]
    assert paper.startswith(citation.preferred_citation.title)
    assert "2601.06022" in str(citation.preferred_citation.url)
