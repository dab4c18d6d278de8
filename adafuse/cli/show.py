"""How `adafuse show` prints an example, or a list of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from adafuse.cli.options import example_ids, option
from adafuse.cli.output import json_line, one_line
from adafuse.errors import UserError, meant
from adafuse.records import Candidate, Result, Round

if TYPE_CHECKING:
    import pyarrow as pa

_CANDIDATE, _NUMBER = 34, 10
"""Columns of a terminal that a candidate with its proposers, and a number, need."""


def print_list(rows: list[dict[str, Any]]) -> None:
    """Print a line per example: id, why its text ends, and how the text begins."""
    console = Console(highlight=False)
    lines = [_listed(row, console.width if console.is_terminal else None) for row in rows]
    if console.is_terminal and len(lines) >= console.height:
        with console.pager():
            _print_lines(console, lines)
    else:
        _print_lines(console, lines)


def _print_lines(console: Console, lines: list[str]) -> None:
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def _listed(row: dict[str, Any], width: int | None) -> str:
    line = f"{one_line(str(row['id']))}  {row['stop_reason']}  {one_line(row['text'])}"
    return line if width is None or len(line) < width else f"{line[: width - 2]}…"


def print_example(
    unique: str, result: Result, models: list[str], prompt: str | None, number: int | None
) -> None:
    """Print all rounds of an example, or only one, and what came out."""
    console = Console(highlight=False)
    console.print(Text(f"example {one_line(unique)}"), style="bold")
    for place, model in enumerate(models):
        console.print(Text(f"model {place}: {one_line(model)}"))
    if prompt is not None:
        console.print(Text.assemble(("prompt: ", "bold"), one_line(prompt)))
    for place, taken in enumerate(result.rounds, 1):
        if number in (None, place):
            console.print(_heading(place, taken))
            _print_round(console, taken)
    if number is not None:
        return
    console.print(Text.assemble(("text: ", "bold"), one_line(result.text)))
    facts = f"stopped by {result.stop_reason} after {len(result.rounds)} rounds"
    costs = f"tokens {list(result.tokens)}, forwards {list(result.forwards)} per model"
    console.print(Text(f"{facts}; {costs}; {result.seconds:.2f} s"))
    if result.error:
        console.print(Text(f"error: {one_line(result.error)}", style="red"))


def _heading(number: int, taken: Round) -> Text:
    margins = [" ".join(f"{value:.2f}" for value in values) for values in taken.margins]
    words = "1 word" if taken.words == 1 else f"{taken.words} words"
    read = f"; start-of-word margins {' | '.join(margins)}" if any(margins) else ""
    return Text.assemble((f"\nround {number}", "bold"), f": {words}{read}")


def _print_round(console: Console, taken: Round) -> None:
    """Print the pool as a table, or where that has no room as lines."""
    if console.width >= _CANDIDATE + _NUMBER * (len(taken.margins) + 1):
        console.print(_table(taken))
        return
    for index, candidate in enumerate(taken.candidates):
        console.print(_lines(candidate, index == taken.selected))


def _table(taken: Round) -> Table:
    table = Table()
    for heading in ("", "candidate", "by"):
        table.add_column(heading)
    for model in range(len(taken.margins)):
        table.add_column(f"NLL {model}", justify="right")
    table.add_column("F", justify="right")
    for index, candidate in enumerate(taken.candidates):
        table.add_row(*_cells(candidate, index == taken.selected, len(taken.margins)))
    return table


def _cells(candidate: Candidate, won: bool, models: int) -> list[Text]:
    style = "bold green" if won else ""
    nll = [f"{value:.3f}" for value in candidate.nll] or [""] * models
    cells = ["=>" if won else "", _written(candidate), _by(candidate), *nll]
    return [Text(cell, style) for cell in (*cells, f"{candidate.fused:.3f}")]


def _lines(candidate: Candidate, won: bool) -> Text:
    nll = " ".join(f"{value:.3f}" for value in candidate.nll)
    told = f"{'=>' if won else '  '} {_written(candidate)}\n"
    told += f"     by {_by(candidate)}, F {candidate.fused:.3f}, NLL {nll}"
    return Text(told, "bold green" if won else "")


def _written(candidate: Candidate) -> str:
    return one_line(candidate.text) + ("<END>" if candidate.ends else "")


def _by(candidate: Candidate) -> str:
    return ",".join(str(model) for model in candidate.proposers)


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
    pass  # regroup
    from adafuse.workflow.traces import read_arrow, read_metadata, result_from

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
