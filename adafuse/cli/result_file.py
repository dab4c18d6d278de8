"""The Parquet file of `adafuse generate`, of all prompts or of those that ended before a stop."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import typer

from adafuse.cli.decoding import Decoding, columns, in_turn, print_row
from adafuse.cli.prompts import Prompt
from adafuse.errors import UserError
from adafuse.records import Result


def check_out(out: Path) -> None:
    """Refuse a file that cannot be written, before anything is decoded.

    Raises:
        UserError: another ending than .parquet, a folder, or one in which nothing can be written.
    """
    from adafuse.traces.atomic import check_writable

    if out.suffix != ".parquet" and not out.is_dir():
        raise UserError(
            f"--out {str(out)!r} does not end in .parquet, the format of what is written; call it"
            f" {str(out.with_suffix('.parquet'))!r}"
        )
    absolute = Path(os.path.abspath(out))
    top = Path(*absolute.parts[:2])
    if absolute != top and not top.exists():  # no place for results, so more likely a slip
        raise UserError(f"--out {str(out)!r}: {str(top)!r} does not exist; check the path")
    check_writable(out)


def to_file(decoding: Decoding, rows: Sequence[Prompt], out: Path, *, as_json: bool) -> int:
    """Write a Parquet file, and lines of JSON, too, if wanted; return how many prompts failed.

    On Ctrl-C or an error in between, the rows that ended are written.
    """
    ended: dict[int, Result] = {}
    replaced = out.exists()
    try:
        stream = _kept(decoding.stream(rows, printed=as_json), ended)
        for row, result in zip(rows, in_turn(stream), strict=True):
            if as_json:
                print_row(row, result)
    finally:
        if ended:
            _write(decoding, rows, ended, out)
        if 0 < len(ended) < len(rows):
            found = f"stopped after {len(ended)} of {len(rows)} prompts; they are in {out}"
            typer.echo(found + ", which was replaced" * replaced, err=True)
    failed = sum(result.stop_reason == "error" for result in ended.values())
    count = "1 prompt" if len(rows) == 1 else f"{len(rows)} prompts"
    place = f"replaced {out}" if replaced else f"written to {out}"
    typer.echo(f"{count} continued, {failed} of them failed; {place}", err=as_json)
    return failed


def _kept(
    stream: Iterator[tuple[int, Result]], ended: dict[int, Result]
) -> Iterator[tuple[int, Result]]:
    for index, result in stream:
        ended[index] = result
        yield index, result


def _write(
    decoding: Decoding, rows: Sequence[Prompt], ended: Mapping[int, Result], out: Path
) -> None:
    import pyarrow as pa

    from adafuse.pipeline.provenance import versions
    from adafuse.traces.schema import RESULT_FIELDS
    from adafuse.traces.table import write_table

    fields = [pa.field("id", pa.string()), pa.field("prompt", pa.string()), *RESULT_FIELDS]
    chosen = {"method": decoding.method, **decoding.options, **decoding.settings}
    settings = {"models": list(decoding.models), **decoding.loading, **chosen}
    table = [columns(rows[index], ended[index]) for index in sorted(ended)]
    write_table(out, fields, table, {"settings": settings, "versions": versions()})
