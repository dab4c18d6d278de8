"""What `adafuse generate` decodes, and where the results go."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from adafuse.cli.output import json_line, one_line, write
from adafuse.cli.progress import followed, speed
from adafuse.cli.prompts import Prompt
from adafuse.errors import UserError
from adafuse.records import Result

if TYPE_CHECKING:
    from adafuse.ensemble import Ensemble


@dataclass(frozen=True, slots=True)
class Decoding:
    """Models and how they are loaded, a method and its options, and the settings of every method.

    Names are those of `Ensemble.from_pretrained` and `Ensemble.stream`.
    """

    models: Sequence[str]
    loading: dict[str, Any]
    method: str
    options: dict[str, Any]
    settings: dict[str, Any]

    def check(self) -> None:
        """Refuse what can be refused before a model is loaded.

        Raises:
            UserError: an unknown method, an option that it does not have, or a value out of range.
        """
        from adafuse.methods import resolve
        from adafuse.methods.limits import Settings
        from adafuse.methods.options import parse
        from adafuse.selection.registry import SELECTIONS

        if self.method in SELECTIONS:
            raise UserError(
                f"method {self.method!r} chooses between runs of the workflow and decodes nothing"
                " itself; use it in a configuration (config/README.md) or name a method that"
                " decodes"
            )
        resolve(self.method, self.options).check_models(len(self.models))
        parse(Settings, self.settings, "generate")

    def ensemble(self) -> "Ensemble":
        """Load the models."""
        from adafuse.ensemble import Ensemble  # imports torch, which bad input need not wait for

        if sys.stderr.isatty():
            count = len(self.models)
            typer.echo("loading 1 model" if count == 1 else f"loading {count} models", err=True)
        return Ensemble.from_pretrained(self.models, **self.loading)

    def stream(self, rows: Sequence[Prompt], *, printed: bool) -> Iterator[tuple[int, Result]]:
        """Decode all prompts and yield each result with its number as soon as it ends.

        Where they are `printed` to a terminal, there is no progress bar between them.
        """
        ensemble = self.ensemble()
        texts = [row.text for row in rows]
        stream = ensemble.stream(texts, method=self.method, **self.options, **self.settings)
        return followed(stream, len(rows), hidden=printed and sys.stdout.isatty())


def in_turn(stream: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """Yield results in the order of their numbers, each as soon as it is its turn."""
    waiting: dict[int, Result] = {}
    turn = 0
    for index, result in stream:
        waiting[index] = result
        while turn in waiting:
            yield waiting.pop(turn)
            turn += 1


def to_stdout(decoding: Decoding, rows: Sequence[Prompt]) -> int:
    """Print a line of JSON per prompt; return how many failed."""
    results = in_turn(decoding.stream(rows, printed=True))
    return sum(print_row(row, result) for row, result in zip(rows, results, strict=True))


def live(decoding: Decoding, row: Prompt) -> int:
    """Print the text of one prompt while it is decoded; return whether it failed.

    Nothing else goes to standard output, but for a line break behind the text in a terminal.
    """
    settings = {k: v for k, v in decoding.settings.items() if k != "batch_size"}
    ensemble = decoding.ensemble()
    stream = ensemble.stream_text(row.text, method=decoding.method, **decoding.options, **settings)
    for span in stream:
        write(span)
    result = stream.result
    assert result is not None
    if sys.stdout.isatty() and not result.text.endswith("\n"):
        write("\n")
    if result.error is not None:
        typer.echo(f"error: {one_line(result.error)}", err=True)
    elif sys.stderr.isatty():
        typer.echo(_facts(result), err=True)
    return int(result.stop_reason == "error")


def _facts(result: Result) -> str:
    tokens = max(result.tokens, default=0)
    counts = f"{len(result.rounds)} rounds, {tokens} tokens"
    rate = speed(tokens, result.seconds)
    return f"{counts}, {result.seconds:.1f} s, {rate}; stopped by {result.stop_reason}"


def print_row(row: Prompt, result: Result) -> bool:
    """Print a result as a line of JSON; return whether it failed."""
    typer.echo(json_line(columns(row, result)))
    sys.stdout.flush()
    return result.stop_reason == "error"


def columns(row: Prompt, result: Result) -> dict[str, Any]:
    """Return a result as a row, its prompt first."""
    from adafuse.traces.schema import result_columns

    return {"id": row.id, "prompt": row.text, **result_columns(result)}
