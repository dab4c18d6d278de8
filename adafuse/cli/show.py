"""`adafuse show`: examples of a trace, round by round."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adafuse.cli.completion import example_ids
from adafuse.cli.options import option
from adafuse.cli.output import json_line
from adafuse.errors import UserError, meant

if TYPE_CHECKING:
    import pyarrow as pa

_LISTED = ("id", "stop_reason", "tokens", "text")


def show(
    trace: Annotated[
        Path,
        typer.Argument(help="A Parquet file of generate or of the workflow.", metavar="TRACE"),
    ],
    ids: Annotated[
        list[str] | None,
        option(
            "Which example; repeatable. The first by default.",
            "ID",
            None,
            "--id",
            autocompletion=example_ids,
        ),
    ] = None,
    number: Annotated[
        int | None, option("Only this round, counted from 1.", "N", None, "--round", min=1)
    ] = None,
    listed: Annotated[bool, option("List all examples instead.", "", None, "--list")] = False,
    as_json: Annotated[
        bool, option("Print a line of JSON per example.", "", None, "--json")
    ] = False,
) -> None:
    """Print how a text was decoded: candidates, their NLLs and the winner.

    --list names the examples. Columns NLL 0, NLL 1, ... are the models, F is
    what the smallest of wins.
    """
    from adafuse.cli.show_example import print_example, print_list
    from adafuse.traces.schema import result_from
    from adafuse.traces.table import read_arrow, read_metadata

    if listed:
        rows = read_arrow(trace, _LISTED).to_pylist()
        if as_json:
            _echo_rows(rows)
        else:
            print_list(rows)
        return
    rows = _chosen(trace, read_arrow(trace), ids or [])
    if number is not None:
        _check_rounds(rows, number)
    if as_json:
        _echo_rows([_with_one_round(row, number) for row in rows])
        return
    models = _models(read_metadata(trace))
    for row in rows:
        print_example(str(row["id"]), result_from(row), models, row.get("prompt"), number)


def _chosen(trace: Path, table: "pa.Table", wanted: list[str]) -> list[dict[str, Any]]:
    places = {str(name): place for place, name in enumerate(table.column("id").to_pylist())}
    if not places:
        raise UserError(f"{str(trace)!r} holds no example; name another file")
    for name in wanted:
        if name not in places:
            some = ", ".join(list(places)[:5])
            raise UserError(
                f"no example {name!r} in {trace}; it holds {len(places)}, such as {some}"
                f"{meant(name, places)}"
            )
    chosen = [places[name] for name in wanted] or [0]
    rows: list[dict[str, Any]] = table.take(chosen).to_pylist()
    return rows


def _check_rounds(rows: list[dict[str, Any]], number: int) -> None:
    for row in rows:
        if number > len(row["rounds"]):
            raise UserError(
                f"example {row['id']!r} has no round {number}; it has {len(row['rounds'])}"
            )


def _with_one_round(row: dict[str, Any], number: int | None) -> dict[str, Any]:
    if number is None:
        return row
    return {**row, "round": number, "rounds": row["rounds"][number - 1 : number]}


def _echo_rows(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        typer.echo(json_line(row))


def _models(metadata: dict[str, Any]) -> list[str]:
    """Return the models of a trace, whether `generate` or the workflow wrote it."""
    first = metadata.get("shards", [metadata])[0]
    if "job" in first:
        return [model["path"] for model in first["job"]["models"]]
    return list(first.get("settings", {}).get("models", []))
