"""The results of `Ensemble.generate`: a list, and a table of any kind."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import pyarrow as pa

from adafuse.errors import UserError
from adafuse.records.result import Result
from adafuse.records.views import model_names, results_html
from adafuse.storage.files import located
from adafuse.storage.parquet import as_table
from adafuse.storage.traces import PROMPT_FIELDS, prompt_row, write_trace

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


class Results(list[Result]):
    """A list with one `Result` per prompt, in the order of the prompts, that is also a table.

    The table has a row per result and the columns of a trace (docs/traces.md): `id` (the number of
    the prompt, from 1), `prompt` (a conversation as JSON) and the other fields of `Result`. A slice
    or a copy is a table, too. A notebook shows the first results with their rounds.
    """

    def __init__(
        self, results: Iterable[Result], settings: Mapping[str, Any], plugins: Mapping[str, str]
    ) -> None:
        super().__init__(results)
        self.settings, self._plugins = dict(settings), plugins
        self._own = {id(result): result for result in self}

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (list(self), self._own_of(self), self.settings, self._plugins)

    def _own_of(self, part: Iterable[Result]) -> list[Result]:
        return [result for result in part if id(result) in self._own]

    def copy(self) -> "Results":
        return self[:]

    @overload
    def __getitem__(self, index: SupportsIndex) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> "Results": ...
    def __getitem__(self, index: SupportsIndex | slice) -> "Result | Results":
        if not isinstance(index, slice):
            return super().__getitem__(index)
        part = super().__getitem__(index)
        return _restored(part, self._own_of(part), self.settings, self._plugins)

    def to_arrow(self) -> pa.Table:
        """Return the table as a `pyarrow.Table`.

        Raises:
            UserError: a result of another call was added to the list.
        """
        rows = []
        for result in self:
            if id(result) not in self._own:
                raise UserError(f"{result!r} is a result of another call; make one table for each")
            assert result.id is not None and result.prompt is not None
            rows.append(prompt_row(result.id, result.prompt, result))
        return as_table(PROMPT_FIELDS, rows)

    def _repr_html_(self) -> str:
        return results_html(self, model_names(self.settings.get("models", ())))

    def to_polars(self) -> "pl.DataFrame":
        """Return the table as a polars data frame; see `to_arrow`.

        Raises:
            UserError: polars is not installed.
        """
        frame: pl.DataFrame = _installed("polars").from_arrow(self.to_arrow())
        return frame

    def to_pandas(self) -> "pd.DataFrame":
        """Return the table as a pandas data frame; see `to_arrow`.

        Raises:
            UserError: pandas is not installed.
        """
        _installed("pandas")
        return self.to_arrow().to_pandas()

    def to_parquet(self, path: str | Path) -> None:
        """Write the table, the settings and the versions to a Parquet file.

        It is what `adafuse generate --out` writes: `adafuse show` and `adafuse report` read it.

        Raises:
            UserError: the path does not end in .parquet, or names a variable that is not set.
        """
        file = Path(located(str(path)))
        if file.suffix != ".parquet":
            raise UserError(f"{str(path)!r} does not end in .parquet; give it that ending")
        write_trace(file, self.to_arrow(), self.settings, self._plugins)


def _restored(
    results: Iterable[Result],
    own: Iterable[Result],
    settings: Mapping[str, Any],
    plugins: Mapping[str, str],
) -> Results:
    """Return results of a copy or a part; `own` are those that no other call made."""
    restored = Results(own, settings, plugins)
    restored[:] = results
    return restored


def _installed(package: str) -> Any:
    try:
        return import_module(package)
    except ModuleNotFoundError:
        raise UserError(f"{package} is not installed; run pip install {package}") from None
