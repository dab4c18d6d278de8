"""How a result and its rounds look: as text in a terminal, as HTML in a notebook."""

import math
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_CANDIDATE, _NUMBER = 34, 10
"""Columns of a terminal that a candidate with its proposers, and a number, need."""

MOST_RESULTS = 20
"""In a notebook."""
_ASKED = 80
"""Characters of a prompt in a list."""


def harmless(text: str) -> str:
    """Return a text whose control characters, escape for one, do nothing to a terminal."""
    controls = {c for c in text if c not in "\n\t" and unicodedata.category(c) == "Cc"}
    return text.translate({ord(c): c.encode("unicode_escape").decode() for c in controls})


def one_line(text: str) -> str:
    """Return a text as one line that does nothing to a terminal."""
    return harmless(text).replace("\n", "\\n").replace("\t", "\\t")


class RoundView:
    """What a round shows of itself."""

    __slots__ = ()

    candidates: tuple[Any, ...]
    selected: int | None
    words: int
    margins: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    joint: Any

    def __repr__(self) -> str:
        chosen = None if self.selected is None else self.candidates[self.selected].text
        return f"<Round {chosen!r}, one of {len(self.candidates)}>"

    @property
    def chosen(self) -> str:
        """The committed span, as one line."""
        return "" if self.selected is None else one_line(self.candidates[self.selected].text)

    @property
    def facts(self) -> str:
        """Words, margins and weights."""
        words = "1 word" if self.words == 1 else f"{self.words} words"
        margins = " | ".join(" ".join(f"{value:.2f}" for value in read) for read in self.margins)
        weights = " ".join(f"{weight:.2f}" for weight in self.weights)
        read = f"; margins {margins}" if any(self.margins) else ""
        return words + read + (f"; weights {weights}" if weights else "")

    def cells(self, models: Sequence[str] = ()) -> tuple[list[str], list[list[str]]]:
        """Return the headings and the rows of the table of candidates, with the models' names."""
        proposers = (k + 1 for candidate in self.candidates for k in candidate.proposers)
        most = max([len(self.margins), *(len(each.nll) for each in self.candidates), *proposers])
        models = models or [str(number) for number in range(most)]
        rows = []
        for index, candidate in enumerate(self.candidates):
            nll = [f"{value:.3f}" for value in candidate.nll] or [""] * len(models)
            text = one_line(candidate.text) + "<END>" * candidate.ends
            mark = "=>" * (index == self.selected)
            by = ",".join(models[k] for k in candidate.proposers)
            by = by or "all" * bool(mark and self.joint)
            scored = candidate.nll or math.isfinite(candidate.fused)
            rows.append([mark, text, by, *nll, f"{candidate.fused:.3f}" if scored else ""])
        return ["", "candidate", "by", *(f"NLL {model}" for model in models), "F"], rows

    def print(self, console: "Console", number: int) -> None:
        """Print the pool as a table, or where that has no room as lines."""
        from rich.table import Table
        from rich.text import Text

        console.print(Text.assemble((f"\nround {number}", "bold"), f": {self.facts}"))
        headings, rows = self.cells()
        table = Table(*headings[:3])
        for heading in headings[3:]:
            table.add_column(heading, justify="right")
        wide = console.width >= _CANDIDATE + _NUMBER * (len(headings) - 3)
        for mark, text, by, *nll, fused in rows:
            style = "bold green" if mark else ""
            if wide:
                table.add_row(*(Text(cell, style) for cell in (mark, text, by, *nll, fused)))
            else:
                costs = f"     by {by}, F {fused}, NLL {' '.join(nll)}"
                console.print(Text(f"{mark:2} {text}\n{costs}", style))
        if wide:
            console.print(table)

    def _repr_html_(self) -> str:
        return _html(taken=self, models=())


class ResultView:
    """What a result shows of itself."""

    __slots__ = ()

    text: str
    stop_reason: Any
    rounds: tuple[Any, ...]
    tokens: tuple[int, ...]
    forwards: tuple[int, ...]
    seconds: float
    error: str | None
    traceback: str | None
    thoughts: int | None
    id: str | None
    prompt: Any

    @property
    def asked(self) -> str:
        """The end of the prompt as one line; of a conversation, of its last message."""
        said = self.prompt.turns[-1].content if hasattr(self.prompt, "turns") else self.prompt
        return one_line(said or "")[-_ASKED:]

    @property
    def parts(self) -> tuple[str, str]:
        """The thoughts, if there are some, and the answer."""
        end = self.thoughts or 0
        return self.text[:end], self.text[end:]

    @property
    def thought_facts(self) -> str:
        """How much of the text is thoughts; empty without any."""
        words = len(self.parts[0].split())
        return f"{words} of {len(self.text.split())} words, not scored" if words else ""

    def __str__(self) -> str:
        return self.text if self.error is None else f"{self.text}[error: {self.error}]"

    def __repr__(self) -> str:
        shown = self.text if len(self.text) <= 60 else f"{self.text[:59]}…"
        why = f"error: {self.error}" if self.error is not None else self.stop_reason
        return f"<Result {shown!r}, {why}, {_counted(len(self.rounds))}>"

    @property
    def facts(self) -> str:
        """Why the text ends, and what it took."""
        facts = f"stop reason: {self.stop_reason}, after {len(self.rounds)} rounds"
        costs = f"tokens {list(self.tokens)}, forwards {list(self.forwards)} per model"
        return f"{facts}; {costs}; {self.seconds:.2f} s"

    def show(
        self,
        only: int | None = None,
        *,
        models: Sequence[str] = (),
        prompt: str | None = None,
    ) -> None:
        """Print the rounds and the text, or `only` one round, counted from 1.

        The names of the models and the prompt are printed if they are given.
        """
        from rich.console import Console
        from rich.text import Text

        console = Console(highlight=False)
        for place, model in enumerate(models):
            console.print(Text(f"model {place}: {one_line(model)}"))
        if prompt is not None:
            console.print(Text.assemble(("prompt: ", "bold"), one_line(prompt)))
        for number, one in enumerate(self.rounds, 1):
            if only in (None, number):
                one.print(console, number)
        if only is not None:
            return
        thoughts, answer = self.parts
        if thoughts:
            said = (f"thoughts ({self.thought_facts}): ", "bold")
            console.print(Text.assemble(said, one_line(thoughts)))
        console.print(
            Text.assemble(("answer: " if thoughts else "text: ", "bold"), one_line(answer))
        )
        console.print(Text(self.facts))
        if self.error:
            console.print(Text(f"error: {one_line(self.error)}", style="red"))
        if self.traceback:
            console.print(Text(harmless(self.traceback.rstrip()), style="dim"), soft_wrap=True)

    def _repr_html_(self) -> str:
        return _html(results=[self], models=())


def model_names(paths: Sequence[str]) -> list[str]:
    """Return the last part of each path, or the whole paths if others share it."""
    last = [Path(path).name for path in paths]
    return told_apart(last if len(set(last)) == len(set(paths)) else paths)


def told_apart(names: Sequence[str]) -> list[str]:
    """Return names of models, those that several have with the numbers of these."""
    return [f"{name} ({k})" if names.count(name) > 1 else name for k, name in enumerate(names)]


def results_html(results: Sequence[ResultView], models: Sequence[str]) -> str:
    """Return what a notebook shows of results: the first ones, by the prompts they continue."""
    more = max(0, len(results) - MOST_RESULTS)
    return _html(results=results[:MOST_RESULTS], models=models, listed=True, more=more)


def _counted(rounds: int) -> str:
    return f"{rounds} round{'s' * (rounds != 1)}"


def _html(**values: object) -> str:
    from jinja2 import Template

    template = Path(__file__).with_suffix(".html.j2").read_text(encoding="utf-8")
    page: str = Template(template, autoescape=True, trim_blocks=True).render(values)
    return page
