"""Records of a file: JSON lines, a JSON list, CSV, TSV or Parquet."""

import csv
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from adafuse.errors import UserError
from adafuse.storage.files import read_text
from adafuse.storage.yaml_files import parse_json

Record = Mapping[str, Any]

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_LONGEST = 1 << 30  # characters of a field


def read_records(
    path: Path, kind: str, columns: Collection[str] | None = None
) -> Iterator[tuple[str, Record]]:
    """Yield the records of a file, with their place for errors.

    All values of CSV and TSV are text. `kind` is what the file is for the user, `columns` are those
    to read of Parquet.
    """
    for where, record in _records(path, kind, columns):
        if not isinstance(record, Mapping):
            raise UserError(f'{where} is not a JSON object; write {{"question": ..., ...}}')
        yield where, record


def _records(path: Path, kind: str, columns: Collection[str] | None) -> Iterator[tuple[str, Any]]:
    if path.suffix.lower() == ".parquet" or _starts_like_parquet(path):
        return _parquet(path, columns)
    text = read_text(path, kind)
    ending = Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()
    if separator := _SEPARATORS.get(ending):
        header = text.partition("\n")[0]
        # Excel writes semicolons where a comma is the decimal mark.
        of_excel = ending == ".csv" and ";" in header and "," not in header
        return _separated(text, path, ";" if of_excel else separator)
    return _json(text, path, as_list=ending not in (".jsonl", ".ndjson"))


def _starts_like_parquet(path: Path) -> bool:
    if not path.is_file():  # a pipe can be read only once
        return False
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError:
        return False


def _parquet(path: Path, columns: Collection[str] | None) -> Iterator[tuple[str, Any]]:
    from adafuse.storage.parquet import iterate_rows, read_schema

    schema, features = read_schema(path, ()), {}
    try:
        if b"ClassLabel" in (schema.metadata or {}).get(b"huggingface", b""):
            from datasets import Features

            of_all = Features.from_arrow_schema(schema)
            features = {name: of_all[name] for name in of_all if columns is None or name in columns}
        for number, record in enumerate(iterate_rows(path, columns)):
            yield at_row(path, number), as_written(record, features) if features else record
    except (ValueError, LookupError, TypeError) as error:
        said = " ".join(str(error).split())
        raise UserError(
            f"{str(path)!r} cannot be read with the types that `datasets` wrote into it ({said});"
            " write it again without its metadata"
        ) from None


def as_written(value: Any, feature: Any) -> Any:
    """Return a value of a dataset with the names of its classes, and 0.1 of 32 bits as 0.1."""
    import datasets

    from adafuse.storage.parquet import written

    if value is None:
        return None
    if isinstance(feature, datasets.ClassLabel):
        return feature.int2str(value) if value >= 0 else None
    if isinstance(feature, datasets.Value) and feature.dtype in ("float16", "float32"):
        return written(value, feature.pa_type)
    if isinstance(feature, Mapping):
        return {name: as_written(value[name], inner) for name, inner in feature.items()}
    if isinstance(feature, list):
        return [as_written(each, feature[0]) for each in value]
    inner = getattr(feature, "feature", None)  # of a list
    return value if inner is None else [as_written(each, inner) for each in value]


def _separated(text: str, path: Path, separator: str) -> Iterator[tuple[str, Any]]:
    csv.field_size_limit(_LONGEST)
    lines = (f"{line}\n" for line in text.removesuffix("\n").split("\n"))
    reader = csv.reader(lines, delimiter=separator, strict=True)
    names: list[str] = []
    while True:
        where = f"{path}, line {reader.line_num + 1}"
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            form = "TSV" if separator == "\t" else "CSV"
            raise UserError(f"{where} is not valid {form} ({error}); quote it") from None
        if not fields:
            continue
        if not names:
            names = fields
            if twice := [name for name, times in Counter(names).items() if times > 1]:
                raise UserError(f"{where}: column {twice[0]!r} occurs twice; remove one")
            continue
        if fields == names:
            raise UserError(f"{where} is the header again; remove it, as where files were joined")
        if len(fields) != len(names):
            raise UserError(
                f"{where} has {len(fields)} fields, but the header has {len(names)}; quote fields"
                f" with {separator!r} or line breaks"
            )
        # Whoever does not quote has rows of which one begins with a quote, and a later one ends so.
        if separator == "\t" and any({*"\t\n"} <= {*field} for field in fields):
            raise UserError(
                f"{where}: a quote begins a field that has tabs and line breaks, as if several rows"
                ' were one; write a quote as "" within quotes, or give JSON lines'
            )
        yield where, dict(zip(names, fields, strict=True))


def _json(text: str, path: Path, *, as_list: bool) -> Iterator[tuple[str, Any]]:
    if as_list and text.lstrip().startswith("["):
        for number, value in enumerate(_parsed(text, str(path), "give a list of objects")):
            yield at_row(path, number), value
        return
    form = "put one JSON object on each line" + ", or all in one list" * as_list
    # Only a line break ends a line: JSON strings may hold U+2028 and other separators as they are.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            where = f"{path}, line {number}"
            yield where, _parsed(line, where, form)


def at_row(source: object, number: int) -> str:
    """Name a record that has no line of its own."""
    return f"{source}, row {number} (counted from 0)"


def _parsed(text: str, where: str, fix: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise UserError(f"{where} is not valid JSON ({error}); {fix}") from None
