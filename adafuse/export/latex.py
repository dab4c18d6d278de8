"""The tables as LaTeX: what they show in Markdown, with booktabs, to be put into a paper."""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from adafuse.config.config import Config
from adafuse.errors import UserError
from adafuse.metrics.intervals import INTERVALS
from adafuse.report.contents import MARKS_LEGEND, marks
from adafuse.report.main_table import Beside, stored_tables, tables_markdown
from adafuse.report.tables import escape as escape_markdown
from adafuse.report.tables import markdown_table, read_comparisons, shown_p
from adafuse.storage.files import without_folders, write_text
from adafuse.version import __version__
from adafuse.workflow.layout import ResultsLayout
from adafuse.workflow.plan import Plan
from adafuse.workflow.stamps import intact
from adafuse.workflow.steps import table_jobs

_HEAD = f"""\
% Made by AdaFuse {__version__}. In the preamble: \\usepackage{{booktabs,graphicx}}
"""
_PREVIEW = r"""\documentclass{article}
\usepackage[utf8]{inputenc}
\usepackage[T1]{fontenc}
\usepackage{booktabs,graphicx}
\usepackage[margin=2cm]{geometry}
\begin{document}
%s\end{document}
"""
_SPECIAL = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    "[": "{[}",  # which LaTeX may take for an option
    "]": "{]}",
    "†": r"\textsuperscript{\dag}",
    "‡": r"\textsuperscript{\ddag}",
}
_INTERVAL = re.compile(r"(.*?) ?(\[[-+]?\d[^\[\]]*, [^\[\]]*\]) ?((?:\\?[*†‡])*) ?(.*)")
_UNIT = re.compile(r"(.*\S) \((.*)\)")
_P = "p of a score: the largest p (Holm) of the tests of this run against each of its models."
_ON_DEMAND = ("p", "p (Holm)", "at worst (p)", "detectable")
"""Columns of the comparisons that are left out, or what they begin with."""


def export_tables(plan: Plan, folder: Path, *, p_values: bool) -> list[Path]:
    """Write every table of a configuration, and preview.tex, which shows them all.

    Raises:
        UserError: a table is missing or stale.
    """
    for each in table_jobs(plan.config):
        missing = [path for path in plan.outputs(each) if not path.is_file()]
        if stale := [*missing, *plan.stale(each)]:
            raise UserError(f"{str(stale[0])!r} is not up to date; run snakemake, then export")
    written = []
    for name, markdown in _sources(plan.config, p_values).items():
        dropped = () if p_values or name != "comparison" else _ON_DEMAND
        text = to_latex(without_folders(markdown), f"tab:{name}", dropped)
        write_text(folder / f"{name}.tex", _HEAD + text)
        written.append(folder / f"{name}.tex")
    inputs = "".join(f"\\input{{{path.stem}}}\n\\clearpage\n" for path in written)
    write_text(folder / "preview.tex", _PREVIEW % inputs)
    return written


def _sources(config: Config, p_values: bool) -> dict[str, str]:
    """Return the Markdown of each table by its name."""
    layout = ResultsLayout(config.results)

    def read(file: str) -> str:
        path = layout.table(file)
        return intact(path).read_text(encoding="utf-8") if path.is_file() else ""

    beside = _beside(read("comparison.csv"), p_values)
    legend = MARKS_LEGEND + f" {_P}" * p_values
    main = tables_markdown(*stored_tables(config), beside)
    found = {
        "main": f"# Scores, strict scoring\n\n{escape_markdown(legend)}\n\n{main}",
        "metrics": read("metrics.md"),
        "comparison": read("comparison.md"),
        "gain": read("gain.md"),
        "certificates": read("certificates.md"),
        "audit": read("audit.md").partition("\n## ")[0],  # without examples
        "datasets": read("datasets.md") and f"# Data sets\n\n{read('datasets.md')}",
        "words_per_round": _words(read("words_per_round.csv")),
    }
    return {name: text for name, text in found.items() if text}


def _beside(comparisons: str, p_values: bool) -> Beside:
    """Return the marks of scores, and how sure it is that a run differs from its models."""
    tests = read_comparisons(comparisons)
    largest: dict[tuple[str, str, str], float] = {}
    for test in tests:
        place = (test.protocol, test.benchmark, test.run)
        if test.role == "member" and p_values:
            largest[place] = max(largest.get(place, 0.0), test.p_holm)
    marked = marks(tests)
    said = {place: shown_p(p) for place, p in largest.items()}
    texts = {place: f"p {p}" if p.startswith("\\") else f"p = {p}" for place, p in said.items()}
    return {place: (marked.get(place, ""), texts.get(place, "")) for place in marked | texts}


def _words(text: str) -> str:
    rows = []
    for row in csv.DictReader(text.splitlines()):
        names = map(escape_markdown, (row["benchmark"], row["run"]))
        share, low, high = (f"{float(row[name]):.1f}" for name in ("share", "low", "high"))
        rows.append([*names, row["words"], row["rounds"], row["n"], f"{share} [{low}, {high}]"])
    head = ("benchmark", "run", "words", "rounds", "of", "percent")
    legend = f"Rounds by the words that they committed, with 95 % intervals ({INTERVALS})."
    return f"# Words per round\n\n{legend}\n\n{markdown_table(head, rows, 2)}" if rows else ""


@dataclass
class _Section:
    """A heading, with the texts and the tables below it; rows are of Markdown, the first a head."""

    title: str = ""
    texts: list[str] = field(default_factory=list)
    tables: list[list[list[str]]] = field(default_factory=list)
    sides: list[str] = field(default_factory=list)
    """of the columns of the last table: l or r"""


_PARSER = MarkdownIt("commonmark", {"html": False}).enable("table")


def to_latex(markdown: str, label: str, dropped: Sequence[str] = ()) -> str:
    """Return Markdown as LaTeX: a float for each table, with its heading as the caption.

    Texts of a section are set below its table. Columns whose headings begin with what is `dropped`
    are left out.
    """
    parts, number = [], 0
    for section in _sections(_PARSER.parse(markdown)):
        notes = "\\par\\smallskip\n".join(section.texts)
        if not section.tables and notes:
            title = f"\\textbf{{{section.title}.}} " if section.title else ""
            parts.append(f"{{\\footnotesize\\noindent {title}{notes}\\par}}\n")
        for table in section.tables:
            number += 1
            name = label if number == 1 else f"{label}-{number}"
            parts.append(_float(section, table, name, notes, dropped))
    return "\n".join(parts)


def _sections(tokens: Sequence[Token]) -> Iterator[_Section]:
    section, inside = _Section(), ""
    cells: list[str] = []
    for token in tokens:
        if token.type == "heading_open":
            yield section
            section = _Section()
        inside = token.type.removesuffix("_open") if token.nesting > 0 else inside
        if token.type == "table_open":
            section.tables.append([])
            section.sides = []
        elif token.type == "tr_open":
            cells = []
            section.tables[-1].append(cells)
        elif token.type == "th_open":
            section.sides.append("r" if "right" in str(token.attrGet("style")) else "l")
        elif token.type == "inline" and inside in ("th", "td"):
            cells.append(token.content)
        elif token.type == "inline" and inside == "heading":
            section.title = _inline(token.content)
        elif token.type == "inline":
            section.texts.append(_inline(token.content))
    yield section


def _float(
    section: _Section, table: list[list[str]], label: str, notes: str, dropped: Sequence[str]
) -> str:
    head, *rows = table
    kept = [n for n, name in enumerate(head) if not (dropped and _begins(name, dropped))]
    sides = "".join(section.sides[n] for n in kept)
    lines = [" & ".join(_heading(head[n], section.sides[n]) for n in kept)]
    lines += [" & ".join(_cell(row[n], section.sides[n]) for n in kept) for row in rows]
    space = "\\addlinespace\n" if "\\scriptsize" in "".join(lines[1:]) else ""
    body = f"\\toprule\n{lines[0]} \\\\\n\\midrule\n"
    body += space.join(f"{line} \\\\\n" for line in lines[1:]) + "\\bottomrule"
    below = f"\\par\\smallskip\n{{\\footnotesize\\raggedright {notes}\\par}}\n" if notes else ""
    return (
        f"\\begin{{table}}[tbp]\n\\centering\\small\n\\caption{{{section.title}}}\n\\label{{{label}}}\n"
        f"\\setbox0=\\hbox{{\\begin{{tabular}}{{{sides}}}\n{body}\n\\end{{tabular}}}}%\n"
        "\\leavevmode\\ifdim\\wd0>\\linewidth\\resizebox{\\linewidth}{!}{\\box0}\\else\\box0\\fi\n"
        f"{below}\\end{{table}}\n"
    )


def _begins(name: str, dropped: Sequence[str]) -> bool:
    return any(name == one or name.startswith(f"{one} (rows") for one in dropped)


def _heading(text: str, side: str) -> str:
    found = _UNIT.fullmatch(text)
    return _stacked([found[1], found[2]], side) if found else _inline(text)


def _cell(text: str, side: str) -> str:
    """Return a cell, with an interval and what comes after it below its number.

    "0.0 % cut", which stands in most cells, is left out.
    """
    text = re.sub(r"\b0\.0 % cut(, )?", "", text).replace(" ()", "").strip()
    if not (found := _INTERVAL.fullmatch(text)):
        return _inline(text)
    number, interval, sign, rest = found.groups()
    return _stacked([number + sign, interval, *filter(None, [rest])], side)


def _stacked(lines: Sequence[str], side: str) -> str:
    first, *small = map(_inline, lines)
    inner = "".join(f"\\\\{{\\scriptsize {line}}}" for line in small)
    return f"\\begin{{tabular}}[t]{{@{{}}{side}@{{}}}}{first}{inner}\\end{{tabular}}"


def _inline(text: str) -> str:
    """Return Markdown within a line as LaTeX; an emphasis without a form of its own is text."""
    forms = {"strong_open": "\\textbf{", "em_open": "\\emph{", "strong_close": "}", "em_close": "}"}
    breaks = {"softbreak": "\n", "hardbreak": "\n"}
    (line,) = _PARSER.parseInline(text)
    parts = []
    for token in line.children or ():
        if token.type in forms | breaks:
            parts.append((forms | breaks)[token.type])
        elif token.type == "code_inline":
            parts.append(f"\\texttt{{{escape(token.content)}}}")
        else:
            parts.append(escape(token.content))
    return re.sub(r'"([^"]*)"', r"``\1''", "".join(parts))


def escape(text: str) -> str:
    """Return text in which LaTeX takes nothing for a command or a ligature."""
    escaped = "".join(_SPECIAL.get(sign, sign) for sign in text)
    escaped = re.sub(r"([-',])(?=\1)", r"\1{}", escaped)  # two of these are another sign
    marked = re.sub(r"(?<![^\W\d])\*(?![^\W\d])", r"\\textsuperscript{*}", escaped)  # not *this*
    return re.sub(r"(?<!\w)(?<!-{})-(?=\d)", "$-$", marked)  # a minus sign
