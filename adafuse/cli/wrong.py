"""`adafuse show --wrong`: what several runs answered on the rows that some of them get wrong."""

import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adafuse.cli.options import option, results_config
from adafuse.cli.output import counted, json_text, warn_of_stale
from adafuse.errors import UserError, unknown
from adafuse.metrics.scorer import PROTOCOLS, STRICT
from adafuse.records.views import one_line

if TYPE_CHECKING:
    from adafuse.metrics.scorer import Metric
    from adafuse.report.failures import Failure, Given
    from adafuse.report.stored import StoredResults


PANEL = "With --wrong"


def show_wrong(
    trace: Path | None = None,
    as_json: bool = False,
    runs: Annotated[
        str | None, option("The runs, separated by commas; all by default.", "A,B", PANEL)
    ] = None,
    benchmark: Annotated[str | None, option("Only this benchmark.", "NAME", PANEL)] = None,
    protocol: Annotated[
        str, option("strict or published.", "NAME", PANEL, values=PROTOCOLS)
    ] = STRICT,
    right_in: Annotated[
        str | None, option("Only rows that these runs get right.", "A,B", PANEL)
    ] = None,
    wrong_in: Annotated[
        str | None, option("Only rows that these runs get wrong.", "A,B", PANEL)
    ] = None,
    csv: Annotated[Path | None, option("Write a CSV file instead.", "FILE", PANEL)] = None,
) -> None:
    """Print failures of a results folder, or write them as CSV."""
    from adafuse.metrics.registry import SCORERS, check_protocol
    from adafuse.report.failures import failures, failures_table, scored_runs
    from adafuse.report.stored import StoredResults
    from adafuse.report.tables import write_table
    from adafuse.storage.files import check_writable

    check_protocol(protocol)
    if csv is not None:
        check_writable(csv)
    results = StoredResults.in_folder(results_config(trace or Path("results")))
    warn_of_stale(results)
    scored = {name: scored_runs(results, name, protocol) for name in _chosen(results, benchmark)}
    wanted = _wanted(scored, _names(runs), protocol)
    found = {
        name: failures(
            results, name, wanted[name], protocol, right=_names(right_in), wrong=_names(wrong_in)
        )
        for name in wanted
    }
    rows = [(name, failure) for name, some in found.items() for failure in some]
    if csv is not None:
        shown = dict.fromkeys(run for some in wanted.values() for run in some)
        write_table(failures_table(rows, [*shown], protocol), csv)
        typer.echo(f"{counted(len(rows), 'row')} in {csv}")
    elif as_json:
        for name, failure in rows:
            typer.echo(json_text({"benchmark": name, "protocol": protocol, **asdict(failure)}))
    else:
        metrics = {n: SCORERS[results.config.benchmarks[n].scorer].primary for n in found}
        _print({name: (metrics[name], found[name]) for name in found}, protocol)


def or_wrong(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--wrong`, with which `show_wrong` runs in its place, and options for it."""
    own = inspect.signature(command, eval_str=True).parameters
    theirs = inspect.signature(show_wrong, eval_str=True).parameters
    more = {name: each for name, each in theirs.items() if name not in own}

    @wraps(command)
    def run(wrong: bool, **given: Any) -> None:
        filters = {name: given.pop(name) for name in more}
        if wrong:
            if others := [name for name in ("ids", "number", "listed") if given.pop(name)]:
                option = {"ids": "--id", "number": "--round", "listed": "--list"}[others[0]]
                raise UserError(f"--wrong shows rows of several runs; leave out {option}")
            show_wrong(**given, **filters)
            return
        if filters != {name: each.default for name, each in more.items()}:
            raise UserError("--runs and the options beside it choose what --wrong shows; add it")
        if given["trace"] is None:
            raise UserError("missing argument 'TRACE'; see 'adafuse show --help'")
        command(**given)

    said = "Answers of several runs side by side, of rows that some run gets wrong."
    flag = Annotated[bool, option(said, "", PANEL, "--wrong")]
    kind = inspect.Parameter.KEYWORD_ONLY
    trace = own["trace"].replace(default=None)
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # which typer reads
        [
            *(each.replace(kind=kind) for each in ({**own, "trace": trace}).values()),
            inspect.Parameter("wrong", kind, default=False, annotation=flag),
            *(each.replace(kind=kind) for each in more.values()),
        ]
    )
    run.__annotations__ = {}
    return run


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()] if text else []


def _chosen(results: "StoredResults", benchmark: str | None) -> list[str]:
    if benchmark is not None and benchmark not in results.runs:
        raise UserError(unknown("benchmark", benchmark, list(results.runs)))
    return list(results.runs) if benchmark is None else [benchmark]


def _wanted(
    scored: dict[str, list[str]], names: Sequence[str], protocol: str
) -> dict[str, list[str]]:
    """Return the runs to show by benchmark; each that is named must be scored on one of them."""
    known = list(dict.fromkeys(run for some in scored.values() for run in some))
    if not known:
        raise UserError(f"there is no {protocol} score to show failures of; run snakemake")
    for name in names:
        if name not in known:
            raise UserError(unknown("scored run", name, known))
    shown = {name: [run for run in names or some if run in some] for name, some in scored.items()}
    return {name: some for name, some in shown.items() if some}


def _counts(found: "Sequence[Failure]", metric: "Metric") -> str:
    if not metric.binary:
        return (
            f"{counted(len(found), 'row')} by {metric.label}, those first on which runs differ most"
        )
    every = sum(not any(given.right for given in each.answers.values()) for each in found)
    return f"{counted(len(found), 'row')} that some run gets wrong, {every} that all get wrong"


def _print(found: "dict[str, tuple[Metric, list[Failure]]]", protocol: str) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    long = 4 * sum(len(rows) for _, rows in found.values()) >= console.height
    with console.pager() if console.is_terminal and long else nullcontext():
        for benchmark, (metric, rows) in found.items():
            head = f"{benchmark}, {protocol} scoring: {_counts(rows, metric)}"
            console.print(Text(head, "bold"), soft_wrap=True)
            space = " " * len(_mark(None, metric))
            for failure in rows:
                console.print(Text(f"\nrow {failure.row}  {one_line(failure.id)}"))
                question = "\n".join(failure.question.strip().split("\n")[-2:])
                width = max(8, *map(len, failure.answers))
                lines = [(space, "question", one_line(question), "")]
                lines.append((space, "gold", one_line(" | ".join(failure.gold)), "bold"))
                for run, given in failure.answers.items():
                    style = "green" if given.right else "red" * metric.binary
                    lines.append((_mark(given, metric), run, _answer(given), style))
                for mark, name, said, style in lines:
                    text = Text(f"  {mark} {name:{width}}  {said}", style)
                    if console.is_terminal:
                        text.truncate(console.width, overflow="ellipsis")
                    console.print(text, soft_wrap=True)
            console.print()


def _mark(given: "Given | None", metric: "Metric") -> str:
    if not metric.binary:
        return f"{given.value:6.1f}" if given else " " * 6
    return " " if given is None else "✓" if given.right else "✗"


def _answer(given: "Given") -> str:
    text, scored = given.text.strip(), given.scored.strip()
    return one_line(text) + (f"  (scored: {one_line(scored)})" if scored != text else "")
