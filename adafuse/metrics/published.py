"""The paper's own numbers, from one data file."""

from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from adafuse.errors import UserError

Text = Annotated[str, Field(min_length=1, strict=True)]
Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]

ROUNDING = 0.005
"""Half a unit of the second decimal, with which the paper prints."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PublishedRow(_Section):
    """A row of Table 1, in percent, with its average as printed and as its cells give it.

    `flagged` says that the two averages differ.
    """

    name: Text
    kind: Literal["model", "baseline", "adafuse"]
    values: Annotated[tuple[Percent, ...], Field(min_length=1)]
    printed_average: Percent
    average: Percent
    flagged: bool = False

    @property
    def cell_average(self) -> float:
        """Mean of the cells, not rounded."""
        return fmean(self.values)

    @model_validator(mode="after")
    def _averages_agree_with_the_cells(self) -> Self:
        # The paper's cells are rounded themselves, hence a hair more than half a unit.
        if abs(self.average - self.cell_average) > ROUNDING + 1e-9:
            raise ValueError(
                f"{self.name}: average {self.average} must be that of its cells,"
                f" {self.cell_average:.2f}"
            )
        if self.flagged != (abs(self.printed_average - self.cell_average) > ROUNDING + 1e-9):
            raise ValueError(
                f"{self.name}: flagged must be {not self.flagged}, as its cells give"
                f" {self.cell_average:.2f} and {self.printed_average} is printed"
            )
        return self


class PublishedTable(_Section):
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


class Headline(_Section):
    """Relative gains of AdaFuse over the best baseline, in percent."""

    advertised_gain: float
    gain_from_cells: float


class Unavailable(_Section):
    """A table of the paper whose numbers we do not have."""

    title: Text
    values: None


class Published(_Section):
    """Everything in config/published.yaml."""

    source: Text
    protocol: Text
    note: Text
    main: PublishedTable
    headline: Headline
    ensemble_size: Unavailable
    words_per_round: Unavailable


def read_published(path: Path) -> Published:
    """Read the paper's numbers.

    Raises:
        UserError: no such file, an unknown key, or an average that its cells do not give.
    """
    try:
        return Published.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"published numbers {str(path)!r} cannot be read: {reason}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UserError(f"published numbers {str(path)!r}: {where}: {first['msg']}") from None


def relative_gain(table: PublishedTable, *, printed: bool) -> float:
    """Return AdaFuse's gain over the best baseline, in percent of the baseline's average.

    Args:
        table: Table 1.
        printed: take the averages that the paper prints, not those of the cells.
    """

    def best(kind: str) -> float:
        rows = [row for row in table.rows if row.kind == kind]
        return max(row.printed_average if printed else row.cell_average for row in rows)

    return 100 * (best("adafuse") / best("baseline") - 1)
