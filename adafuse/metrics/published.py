"""The paper's own numbers, from one data file."""

from pathlib import Path
from statistics import fmean
from typing import Annotated, Self

import yaml
from pydantic import Field, model_validator

from adafuse.errors import UserError
from adafuse.options import Section, Text, parse
from adafuse.storage.files import read_text
from adafuse.storage.yaml_files import parse_yaml

Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


class PublishedRow(Section):
    """A row in percent, with its average if one is printed."""

    name: Text
    values: Annotated[tuple[Percent, ...], Field(min_length=1)]
    printed_average: Percent | None = None

    @property
    def average(self) -> float:
        """Mean of the cells."""
        return fmean(self.values)

    @property
    def flagged(self) -> bool:
        """The printed average is not that of the cells, to two decimals."""
        printed = self.printed_average
        # The paper's cells are rounded themselves, hence a hair more than half a unit.
        return printed is not None and abs(printed - self.average) > 0.005 + 1e-9


class PublishedTable(Section):
    """A table of the paper: a value per benchmark in every row."""

    title: Text
    setting: Text
    benchmarks: tuple[Text, ...]
    rows: Annotated[tuple[PublishedRow, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _rows_have_a_cell_per_benchmark(self) -> Self:
        if twice := [name for name in self.benchmarks if self.benchmarks.count(name) > 1]:
            raise ValueError(
                f"{self.title}: benchmarks names {twice[0]!r} twice; correct one of them"
            )
        for row in self.rows:
            if len(row.values) != len(self.benchmarks):
                raise ValueError(
                    f"{row.name}: {len(row.values)} values must be {len(self.benchmarks)}, one per"
                    " benchmark"
                )
        if all(value <= 1 for row in self.rows for value in row.values):
            raise ValueError(
                f"{self.title}: all values are at most 1, as shares are; give percent, 42 for 0.42"
            )
        return self


class Published(Section):
    """Everything in config/published.yaml."""

    source: Text
    protocol: Text
    note: Text
    tables: Annotated[tuple[PublishedTable, ...], Field(min_length=1)]

    @property
    def cells(self) -> dict[str, dict[str, float]]:
        """The values of each row, of whichever table, by benchmark."""
        return {
            row.name: dict(zip(table.benchmarks, row.values, strict=True))
            for table in self.tables
            for row in table.rows
        }

    @model_validator(mode="after")
    def _rows_have_different_names(self) -> Self:
        names = [row.name for table in self.tables for row in table.rows]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two rows have the name {twice[0]!r}; give them different ones")
        return self


def read_published(path: Path) -> Published:
    """Read the paper's numbers."""
    owner = f"published numbers {str(path)!r}"
    text = read_text(path, "published numbers")
    try:
        return parse(Published, parse_yaml(text), owner)
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise UserError(f"{owner} cannot be read: {' '.join(str(error).split())}") from None
