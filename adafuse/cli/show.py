"""How `adafuse show` prints an example, or a list of them."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from adafuse.cli.options import example_ids, option
from adafuse.cli.output import json_text
from adafuse.cli.wrong import or_wrong
from adafuse.errors import UserError, nearest
from adafuse.models.spec import recorded_names, with_adapter
from adafuse.records.views import one_line

if TYPE_CHECKING:
    import pyarrow as pa


def _thoughts(row: dict[str, Any]) -> int:
    """Return how many characters of a text are thoughts; pandas saves them as floats."""
    length = row.get("thoughts") or 0
    return 0 if math.isnan(length) else int(length)


def _print_list(rows: list[dict[str, Any]]) -> None:
    """Print a line per example: id, why its text ends, and how the answer begins."""
    console = Console(highlight=False)
    paged = console.is_terminal and len(rows) >= console.height
    with console.pager() if paged else nullcontext():
        for row in rows:
            answer = one_line(row["text"][_thoughts(row) :])
            line = f"{one_line(str(row['id']))}  {row['stop_reason']}  {answer}"
            if console.is_terminal and len(line) >= console.width:
                line = f"{line[: console.width - 2]}…"
            console.print(Text(line), soft_wrap=True)


def _print_example(row: dict[str, Any], models: list[str], number: int | None) -> None:
    """Print all rounds of an example and what came out, or only one round."""
    from adafuse.storage.traces import result_from

    console, result = Console(highlight=False), result_from(row)
    console.print(Text(f"example {one_line(str(row['id']))}"), style="bold")
    result.show(number, models=models, prompt=row.get("prompt"))


@or_wrong
def show(
    trace: Annotated[
        Path,
        typer.Argument(
            help="A trace of `adafuse generate` or the workflow; with --wrong, a results folder.",
            metavar="TRACE",
        ),
    ],
    ids: Annotated[
        list[str] | None,
        option(
            "Id of an example; repeatable. The first by default.",
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

    NLL 0, NLL 1, ... are the models' negative log-likelihoods per token; the
    smallest F wins. --list lists the examples. --wrong shows what the runs of a
    results folder answered on rows that some of them get wrong.
    """
    from adafuse.storage.parquet import iterate_rows, read_arrow, read_metadata
    from adafuse.storage.traces import check_trace

    check_trace(trace)
    if listed and (ids or number is not None):
        raise UserError("--list shows all examples; leave out --id and --round")
    if listed:
        rows = [*iterate_rows(trace, ("id", "stop_reason", "tokens", "text", "thoughts"))]
    else:
        rows = _chosen(trace, read_arrow(trace), ids or [])
        _add_prompts(rows, trace)
        for row in rows:
            if number is not None and number > len(row["rounds"]):
                count = len(row["rounds"])
                raise UserError(f"example {row['id']!r} has no round {number}; it has {count}")
    if as_json:
        for row in rows:
            if number is not None and not listed:
                row |= {"round": number, "rounds": row["rounds"][number - 1 : number]}
            typer.echo(json_text(row))
    elif listed:
        _print_list(rows)
    else:
        models = _models(read_metadata(trace))
        for row in rows:
            _print_example(row, models, number)


def _chosen(trace: Path, table: "pa.Table", ids: list[str]) -> list[dict[str, Any]]:
    from adafuse.storage.traces import places

    row_of = places(trace, table)
    if not row_of:
        raise UserError(f"{str(trace)!r} has no examples; name another file")
    for name in ids:
        if name not in row_of:
            some = ", ".join(list(row_of)[:5])
            raise UserError(
                f"no example {name!r} in {trace}; it holds {len(row_of)}, such as {some}"
                f"{nearest(name, row_of)}"
            )
    return list(table.take([row_of[name] for name in ids] or [0]).to_pylist())


def _add_prompts(rows: Sequence[dict[str, Any]], trace: Path) -> None:
    """Add the prompts to rows of the workflow, which has them beside its traces."""
    from adafuse.benchmarks.shards import read_prepared
    from adafuse.workflow.layout import ResultsLayout

    benchmark = rows[0].get("benchmark")
    if benchmark is None:
        return
    folders = (ResultsLayout(folder).rows(benchmark) for folder in trace.absolute().parents)
    file = next(filter(Path.is_file, folders), None)
    prompts = {} if file is None else {row.prompt_sha256: row.prompt for row in read_prepared(file)}
    for row in rows:
        if row.get("prompt_sha256") in prompts:  # else another prompt stands there by now
            row["prompt"] = prompts[row["prompt_sha256"]]


def _models(metadata: dict[str, Any]) -> list[str]:
    """Return the models of a trace, whether `generate` or the workflow wrote it."""
    first = metadata.get("shards", [metadata])[0]
    if "job" in first:
        models = first["job"]["models"]
        return [with_adapter(m["path"], m.get("adapter", {}).get("path")) for m in models]
    return recorded_names(first.get("settings", {}))
