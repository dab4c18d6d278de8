"""`adafuse show`: one example of a trace, round by round."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from adafuse.errors import UserError
from adafuse.records import Candidate, Result, Round


def show(
    trace: Annotated[Path, typer.Argument(help="A Parquet file of generate or of the workflow.")],
    id: Annotated[str, typer.Option("--id", help="Which example; the first by default.")] = "",
) -> None:
    """Print how one text was decoded: the candidates of each round, their NLLs and the winner.

    Example: adafuse show out.parquet --id X
    """
    from adafuse.traces.schema import result_from
    from adafuse.traces.table import read_metadata, read_rows

    rows = {str(row["id"]): row for row in read_rows(trace)}
    if not rows:
        raise UserError(f"{trace} holds no example")
    unique = id or next(iter(rows))
    if unique not in rows:
        some = ", ".join(list(rows)[:5])
        raise UserError(f"no example {unique!r} in {trace}; it holds {len(rows)}, such as {some}")
    _print(unique, result_from(rows[unique]), _models(read_metadata(trace)))


def _models(metadata: dict[str, Any]) -> list[str]:
    """Return the models of a trace, whether `generate` or the workflow wrote it."""
    first = metadata.get("shards", [metadata])[0]
    if "job" in first:
        return [model["path"] for model in first["job"]["models"]]
    return list(first.get("settings", {}).get("models", []))


def _print(unique: str, result: Result, models: list[str]) -> None:
    console = Console()
    console.print(Text(f"example {unique}"), style="bold")
    for number, model in enumerate(models):
        console.print(Text(f"model {number}: {model}"))
    for number, taken in enumerate(result.rounds, 1):
        console.print(_heading(number, taken))
        console.print(_round_table(taken))
    console.print(Text.assemble(("text: ", "bold"), _visible(result.text)))
    facts = f"stopped by {result.stop_reason} after {len(result.rounds)} rounds"
    costs = f"tokens {list(result.tokens)}, forwards {list(result.forwards)} per model"
    console.print(Text(f"{facts}; {costs}; {result.seconds:.2f} s"))
    if result.error:
        console.print(Text(f"error: {result.error}", style="red"))


def _heading(number: int, taken: Round) -> Text:
    margins = [" ".join(f"{value:.2f}" for value in values) for values in taken.margins]
    words = "1 word" if taken.words == 1 else f"{taken.words} words"
    read = f"; start-of-word margins {' | '.join(margins)}" if any(margins) else ""
    return Text.assemble((f"\nround {number}", "bold"), f": {words}{read}")


def _round_table(taken: Round) -> Table:
    table = Table()
    for heading in ("", "candidate", "by"):
        table.add_column(heading)
    for model in range(len(taken.margins)):
        table.add_column(f"NLL {model}", justify="right")
    table.add_column("F", justify="right")
    for index, candidate in enumerate(taken.candidates):
        table.add_row(*_cells(candidate, index == taken.selected))
    return table


def _cells(candidate: Candidate, won: bool) -> list[Text]:
    style = "bold green" if won else ""
    written = _visible(candidate.text) + ("<END>" if candidate.ends else "")
    proposers = ",".join(str(model) for model in candidate.proposers)
    numbers = [f"{value:.3f}" for value in (*candidate.nll, candidate.fused)]
    return [Text(cell, style) for cell in ("=>" if won else "", written, proposers, *numbers)]


def _visible(text: str) -> str:
    return text.replace("\n", "\\n")
