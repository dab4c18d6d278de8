"""The paper's own numbers, from one data file."""

from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal, Self

import yaml
from pydantic import Field, model_validator

from adafuse.errors import UserError
from adafuse.options import Section, Text, parse

Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


class PublishedRow(Section):
    """A row of Table 1, in percent, with its average as printed."""

    name: Text
    kind: Literal["model", "baseline", "adafuse"]
    values: Annotated[tuple[Percent, ...], Field(min_length=1)]
    printed_average: Percent

    @property
    def average(self) -> float:
        """Mean of the cells."""
        return fmean(self.values)

    @property
    def flagged(self) -> bool:
        """The printed average is not that of the cells, to two decimals."""
        # The paper's cells are rounded themselves, hence a hair more than half a unit.
        return abs(self.printed_average - self.average) > 0.005 + 1e-9


class PublishedTable(Section):
    """Table 1: a value per benchmark in every row."""

    title: Text
    setting: Text
    benchmarks: tuple[Text, ...]
    rows: tuple[PublishedRow, ...]

    @model_validator(mode="after")
    def _rows_have_a_cell_per_benchmark(self) -> Self:
        for row in self.rows:
            if len(row.values) != len(self.benchmarks):
                raise ValueError(
                    f"{row.name}: {len(row.values)} values must be {len(self.benchmarks)}, one per"
                    " benchmark"
                )
        return self


class Published(Section):
    """Everything in config/published.yaml."""

    source: Text
    protocol: Text
    note: Text
    main: PublishedTable


def read_published(path: Path) -> Published:
    """Read the paper's numbers."""
    owner = f"published numbers {str(path)!r}"
    try:
        return parse(Published, yaml.safe_load(path.read_text(encoding="utf-8")), owner)
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise UserError(f"{owner} cannot be read: {' '.join(str(error).split())}") from None
