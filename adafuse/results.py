"""The results of `Ensemble.generate`: a list, and a table of any kind."""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import pyarrow as pa

from adafuse.errors import UserError
from adafuse.records.result import Prompt, Result, as_text
from adafuse.storage.parquet import as_table, write_arrow
from adafuse.storage.traces import RESULT_FIELDS, result_columns
from adafuse.version import versions

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

FIELDS = [pa.field("id", pa.string()), pa.field("prompt", pa.string()), *RESULT_FIELDS]
"""The columns of the results of prompts that belong to no benchmark."""


class Results(list[Result]):
    """A list with one `Result` per prompt, in the order of the prompts, that is also a table.

    The table has a row per result and the columns of a trace (docs/traces.md): `id` (the number of
    the prompt, from 1), `prompt` (a conversation as JSON) and the fields of `Result`. A slice or a
    copy keeps the ids and prompts of its results.
    """

    def __init__(
        self,
        results: Iterable[Result],
        prompts: Sequence[Prompt],
        settings: Mapping[str, Any],
        plugins: Mapping[str, str],
    ) -> None:
        super().__init__(results)
        self.settings, self._plugins = dict(settings), plugins
        # A list may be sorted and cut; its results keep their prompts.
        self._asked = {
            id(result): (str(number), as_text(prompt), result)
            for number, (result, prompt) in enumerate(zip(self, prompts, strict=True), 1)
        }

    def __reduce__(self) -> tuple[Any, ...]:
        asked = [self._asked.get(id(result)) for result in self]
        return _restored, (list(self), asked, self.settings, self._plugins)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> "Results": ...
    def __getitem__(self, index: SupportsIndex | slice) -> "Result | Results":
        if not isinstance(index, slice):
            return super().__getitem__(index)
        part = super().__getitem__(index)
        asked = [self._asked.get(id(result)) for result in part]
        return _restored(part, asked, self.settings, self._plugins)

    def to_arrow(self) -> pa.Table:
        """Return the table as a `pyarrow.Table`.

        Raises:
            UserError: a result of another call was added to the list.
        """
        rows = []
        for result in self:
            if id(result) not in self._asked:
                raise UserError(f"{result!r} is a result of another call; make a table of each")
            number, prompt, _ = self._asked[id(result)]
            rows.append({"id": number, "prompt": prompt, **result_columns(result)})
        return as_table(FIELDS, rows)

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
            UserError: the path does not end in .parquet.
        """
        if Path(path).suffix != ".parquet":
            raise UserError(f"{str(path)!r} does not end in .parquet; give it that ending")
        metadata = {"settings": self.settings, "versions": {**versions(), **self._plugins}}
        write_arrow(Path(path), self.to_arrow(), metadata)


def _restored(
    results: Iterable[Result],
    asked: Iterable[tuple[str, str, Result] | None],
    settings: Mapping[str, Any],
    plugins: Mapping[str, str],
) -> Results:
    """Return results that a copy holds, or a part of them, with the ids and prompts they had."""
    restored = Results((), (), settings, plugins)
    restored.extend(results)
    restored._asked = {id(known[2]): known for known in asked if known is not None}
    return restored


def _installed(package: str) -> Any:
    try:
        return import_module(package)
    except ModuleNotFoundError:
        raise UserError(f"{package} is not installed; run pip install {package}") from None
