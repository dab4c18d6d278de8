"""The main table, a row per run and a cell per benchmark, as CSV and as Markdown."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean

from adafuse.config.config import Config
from adafuse.errors import UserError
from adafuse.methods.selections import is_oracle
from adafuse.metrics.compare import Runs
from adafuse.metrics.intervals import INTERVALS
from adafuse.metrics.published import Published, read_published
from adafuse.metrics.registry import metric_named
from adafuse.metrics.score import (
    CERTIFICATE,
    MANY_CUT,
    NEVER_RIGHT,
    Score,
    cut_legend,
    read_score,
)
from adafuse.metrics.scorer import PUBLISHED, STRICT, Metric
from adafuse.report.tables import Table, doubts, escape, markdown_table, published_section
from adafuse.workflow.layout import ResultsLayout
from adafuse.workflow.stamps import intact

_LEGEND = (
    f"Scores (accuracies in percent) with their 95 % intervals ({INTERVALS}), {{}}"
    " scoring.{} Best of each column in bold. {}"
)
MACRO_AVERAGE = "macro average"
_MEAN = f" The {MACRO_AVERAGE} is the mean of a row's own cells."
_METRICS = (
    f"Accuracies are in percent; 95 % intervals ({INTERVALS}). The first metric of each benchmark"
    " is that of the main table, by which runs are compared. Best of each column in bold."
)
STRICT_ORACLES = (
    "Oracles chose by strict scores; under published scoring they need not be upper bounds."
)
_STRICT_CERTIFICATES = "Certificates are of strict scores, not of these."
_PUBLISHED = (
    "The rules of the scorer that the paper used for its Table 1, for comparison with its numbers;"
    " they accept wrong answers (audit.md shows which). That scorer finds rows by lower-cased"
    " question, so that it keeps 2,496 of the 2,500 SQuAD rows; this one finds them by id and keeps"
    " all."
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A score, or a macro average without one: its value in percent, None where it is missing.

    The `best` cells of a column have the same value as printed; oracles take no part, and runs of
    which `many_failed` if these are not just wrong. `failed` rows could not be decoded.
    """

    value: float | None
    score: Score | None = None
    best: bool = False
    failed: int = 0
    many_failed: bool = False

    @property
    def text(self) -> str:
        """The value as printed."""
        return "" if self.value is None else f"{self.value:.1f}"

    @property
    def interval(self) -> str:
        """Both ends of the 95 % interval as printed; empty without one."""
        return self.score.main.ends() if self.score else ""

    @property
    def doubts(self) -> str:
        """Answers that a limit cut, failed rows, and whether there is a certificate, as printed."""
        if self.score is None:
            return doubts(None, self.failed)
        return doubts(self.score.cut_share, self.failed, self.score.certified)


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """A run with a cell per benchmark and their mean, which is missing where one of them is."""

    run: str
    method: str
    models: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def oracle(self) -> bool:
        """Whether the run saw the answers."""
        return is_oracle(self.method)


@dataclass(frozen=True, slots=True)
class Column:
    """A benchmark, and the metric and number of rows of its scores; n is None without scores."""

    name: str
    metric: Metric
    n: int | None


MANY_EMPTY = 5.0
"""In percent; a larger share of answers that are empty, or end in a colon, is a warning."""

_WARNINGS: Sequence[tuple[Callable[[Score], float], float, str]] = (
    (
        lambda score: 100 * score.empty / score.n,
        MANY_EMPTY,
        "{:.0f} % of the answers are empty; look at some in the trace explorer, and check stop"
        " and the prompt",
    ),
    (
        lambda score: 100 * score.announced / score.n,
        MANY_EMPTY,
        "{:.0f} % of the answers end in a colon; look at some in the trace explorer, and check"
        " stop and the prompt",
    ),
    (
        lambda score: score.cut_share or 0.0,
        MANY_CUT,
        "{:.1f} % of the answers are cut; raise max_new_tokens or max_rounds",
    ),
    (
        lambda score: score.beyond_share,
        MANY_CUT,
        "{:.1f} % of the answers do not fit into max_new_tokens; raise it, or set within_budget",
    ),
)
"""Shares of a score's answers, above which percentage they are a warning, and its words."""


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """Runs by benchmarks; `note` is what a reader must know before the numbers."""

    columns: tuple[Column, ...]
    rows: tuple[ScoreRow, ...]
    note: str | None

    @property
    def averaged(self) -> bool:
        """Whether a reader is shown the macro average: that of one benchmark is its score."""
        metrics = [column.metric for column in self.columns]
        return len(metrics) > 1 and averaged(metrics) is not None

    @property
    def oracles(self) -> bool:
        """Whether some run saw the answers."""
        return any(row.oracle for row in self.rows)

    @property
    def chosen_by_strict(self) -> str:
        """What a reader of published scores must know of choices by strict ones."""
        certified = any(score.certified is not None for score in self.scores)
        notes = (STRICT_ORACLES, self.oracles), (_STRICT_CERTIFICATES, certified)
        return " ".join(note for note, applies in notes if applies)

    @property
    def scores(self) -> list[Score]:
        """All scores, row by row."""
        return [cell.score for row in self.rows for cell in row.cells if cell.score]

    def shown(self, row: ScoreRow) -> tuple[Cell, ...]:
        """Return the cells of a row that a reader is shown."""
        return row.cells if self.averaged else row.cells[:-1]

    @property
    def warnings(self) -> list[str]:
        """A sentence on each score that many empty answers, or answers cut short, make doubtful."""
        return [
            f"{score.run} on {score.benchmark}: {text.format(share(score))}"
            for share, most, text in _WARNINGS
            for score in self.scores
            if share(score) > most
        ]


def build_table(
    benchmarks: Sequence[str],
    runs: Runs,
    scores: Sequence[Score],
    note: str | None,
) -> ScoreTable:
    """Arrange scores, at most one per benchmark and run; `runs` has method and models by name."""
    _refuse_mixtures(scores)
    by_cell = {(score.benchmark, score.run): score for score in scores}
    competing = [not is_oracle(run[0]) for run in runs.values()]
    columns, cells = [], []
    for name in benchmarks:
        scored = [by_cell.get((name, run)) for run in runs]
        column = _column(name, [score for score in scored if score])
        plain = [
            Cell(score.main.value, score, False, score.failed, score.lost_share > MANY_CUT)
            if score
            else Cell(None)
            for score in scored
        ]
        columns.append(column)
        cells.append(_with_best(plain, competing, column.metric))
    whole = averaged([column.metric for column in columns])
    averages = [_average(*row) if whole else Cell(None) for row in zip(*cells, strict=True)]
    cells.append(_with_best(averages, competing, whole))
    rows = [
        ScoreRow(name, run[0], tuple(run[1]), tuple(row))
        for (name, run), *row in zip(runs.items(), *cells, strict=True)
    ]
    return ScoreTable(tuple(columns), tuple(rows), note)


def _refuse_mixtures(scores: Sequence[Score]) -> None:
    if len(protocols := {score.protocol for score in scores}) > 1:
        raise UserError(f"scores of {' and '.join(sorted(protocols))} cannot stand in one table")
    models = {str(score.details.get("spm_sha256", "")) for score in scores} - {""}
    if len(models) > 1:
        raise UserError(
            "the scores were made with different SentencePiece models, sha256"
            f" {' and '.join(sorted(models))}; put one of them in place and score again"
        )


def _column(name: str, scores: Sequence[Score]) -> Column:
    n = same_rows(f"the scores of {name!r}", (score.n for score in scores), "column")
    return Column(name, metric_named(scores[0].primary if scores else ""), n)


def same_rows(scores: str, counts: Iterable[int], place: str) -> int | None:
    """Return how many rows each of some scores covers; refuse different numbers."""
    sizes = sorted(set(counts))
    if len(sizes) > 1:
        raise UserError(
            f"{scores} cover {sizes} rows and cannot stand in one {place}; run the workflow again"
        )
    return sizes[0] if sizes else None


def _average(*cells: Cell) -> Cell:
    values = [cell.value for cell in cells if cell.value is not None]
    if len(values) < len(cells):
        return Cell(None)
    failed, many = sum(cell.failed for cell in cells), any(cell.many_failed for cell in cells)
    return Cell(fmean(values), failed=failed, many_failed=many)


def direction(metrics: Sequence[Metric]) -> Metric | None:
    """Return one that is better higher or lower as all of them are; None if they differ."""
    same = len({metric.higher_is_better for metric in metrics}) == 1
    return metrics[0] if same else None


def averaged(metrics: Sequence[Metric]) -> Metric | None:
    """Return a metric of which scores by these have a mean: all are one, or shares to be raised.

    None if a mean says nothing, as that of an accuracy and an edit distance.
    """
    shares = all(metric.higher_is_better and metric.in_percent for metric in metrics)
    return metrics[0] if shares or len({metric.name for metric in metrics}) == 1 else None


def _with_best(
    cells: Sequence[Cell], competing: Sequence[bool], metric: Metric | None
) -> list[Cell]:
    pairs = zip(cells, competing, strict=True)
    texts = [cell.text * (competes and not cell.many_failed) for cell, competes in pairs]
    printed = map(float, filter(None, texts))
    top = max(printed, key=metric.merit, default=None) if metric else None
    return [
        replace(cell, best=text != "" and float(text) == top)
        for cell, text in zip(cells, texts, strict=True)
    ]


def main_table(config: Config, scores: Sequence[Score], protocol: str = STRICT) -> ScoreTable:
    """Arrange the scores of one protocol in the order of the configuration."""
    chosen = [score for score in scores if score.protocol == protocol]
    return build_table(
        config.main_benchmarks, config.compared(config.main_runs), chosen, config.note
    )


def stored_table(config: Config, protocol: str = STRICT) -> ScoreTable:
    """Make the main table of the scores that a configuration's results folder has."""
    layout = ResultsLayout(config.results)
    cells = product(config.main_benchmarks, config.main_runs)
    paths = [layout.score(protocol, *cell) for cell in cells]
    return main_table(config, [read_score(intact(p)) for p in paths if p.is_file()], protocol)


Beside = Mapping[tuple[str, str, str], tuple[str, str]]
"""By protocol, benchmark and run: the marks of a score, and what is said after its interval."""


def stored_tables(config: Config) -> tuple[ScoreTable, ScoreTable | None, Published | None]:
    """Return what `tables_markdown` shows of a configuration: strict, published, and the paper."""
    file = config.published_numbers
    return (
        stored_table(config),
        stored_table(config, PUBLISHED) if PUBLISHED in config.protocols else None,
        read_published(Path(file)) if file is not None else None,
    )


def score_table(table: ScoreTable, markdown: str = "") -> Table:
    """Return the table as CSV has it: percent, blank where there is no score."""
    ends = ("", "_low", "_high", "_n", "_cut", "_failed")
    heads = [f"{column.name}{end}" for column in table.columns for end in ends]
    rows = []
    for row in table.rows:
        scores = [cell.score for cell in row.cells[:-1]]
        numbers = [value for score in scores for value in _numbers(score, len(ends))]
        average = row.cells[-1]
        last = (average.value, None if average.value is None else average.failed)
        rows.append([row.run, row.method, "+".join(row.models), *numbers, *last])
    heads += ["macro_average", "macro_average_failed"]
    return Table(["run", "method", "models", *heads], rows, markdown)


def metrics_table(tables: Iterable[ScoreTable]) -> Table:
    """Return a row per score and metric; the Markdown has a table per benchmark and protocol."""
    rows: list[list[object]] = []
    parts = ["# All metrics\n", f"{_METRICS}\n"]
    for table in tables:
        competing = [not row.oracle for row in table.rows]
        for place, column in enumerate(table.columns):
            scores = [row.cells[place].score for row in table.rows]
            present = [score for score in scores if score]
            names = dict.fromkeys(score.primary for score in present)
            names |= dict.fromkeys(name for score in present for name in score.metrics)
            rows += [
                [score.protocol, score.benchmark, score.run, score.n, name, *astuple(value)]
                for score in present
                for name, value in score.metrics.items()
            ]
            shown = [_metric_cells(scores, competing, name) for name in names]
            cells = [
                [escape(row.run), *texts]
                for row, *texts in zip(table.rows, *shown, strict=True)
                if any(texts)
            ]
            if present:
                title = f"{column.name}, {present[0].protocol} scoring, n = {column.n}"
                labels = [escape(m.label) + m.note for m in map(metric_named, names)]
                parts += [f"## {escape(title)}\n", markdown_table(["run", *labels], cells)]
    columns = ("protocol", "benchmark", "run", "n", "metric", "value", "low", "high")
    return Table(columns, rows, "\n".join(parts))


def _metric_cells(
    scores: Sequence[Score | None], competing: Sequence[bool], name: str
) -> list[str]:
    values = [score.metrics.get(name) if score else None for score in scores]
    many = [score is not None and score.lost_share > MANY_CUT for score in scores]
    pairs = zip(values, many, strict=True)
    plain = [Cell(each.value if each else None, many_failed=lost) for each, lost in pairs]
    cells = _with_best(plain, competing, metric_named(name))
    ends = [value.ends(form=" [{}, {}]") if value else "" for value in values]
    return [
        (f"**{cell.text}**" if cell.best else cell.text) + end
        for cell, end in zip(cells, ends, strict=True)
    ]


def _numbers(score: Score | None, count: int) -> Sequence[float | None]:
    if score is None:
        return (None,) * count
    return (*astuple(score.main), score.n, score.cut_share, score.failed)


def tables_markdown(
    strict: ScoreTable,
    published: ScoreTable | None,
    paper: Published | None,
    beside: Beside | None = None,
) -> str:
    """Return the page of the main table: strict, published and their difference, and the paper."""
    parts = [f"**Warning:** {escape(warning)}.\n" for warning in strict.warnings]
    parts.append(to_markdown(strict, beside=beside))
    if published is not None:
        plain = replace(published, note=None)
        parts += ["## Published scorer\n", f"{_PUBLISHED}\n", to_markdown(plain, PUBLISHED, beside)]
        parts += ["## Published minus strict, in points\n", _differences(strict, published)]
    if paper is not None:
        protocol = STRICT if published is None else PUBLISHED
        names = [column.name for column in strict.columns]
        parts += filter(None, [published_section(paper, names, protocol)])
    return "\n".join(parts)


def to_markdown(table: ScoreTable, protocol: str = STRICT, beside: Beside | None = None) -> str:
    """Return one table with its note above and what it leaves out below."""
    headings = [
        f"{escape(column.name)} ({escape(column.metric.name)}{column.metric.note}, n = {column.n})"
        for column in table.columns
    ]
    rows = []
    for row in table.rows:
        method = escape(row.method) + " (oracle)" * row.oracle
        cells = [_markdown(cell, beside or {}) for cell in table.shown(row)]
        rows.append([escape(row.run), method, escape("+".join(row.models)), *cells])
    note = f"**Note:** {escape(table.note)}\n\n" if table.note else ""
    head = ["run", "method", "models", *headings, *[MACRO_AVERAGE] * table.averaged]
    remarks = "".join(f"- {remark}\n" for remark in _remarks(table))
    legend = _LEGEND.format(protocol, _MEAN * table.averaged, cut_legend(table.scores))
    if protocol == PUBLISHED:
        legend = f"{legend} {table.chosen_by_strict}".rstrip()
    below = f"\n{legend}\n" + (f"\n{remarks}" if remarks else "")
    return note + markdown_table(head, rows, text=3) + below


def _markdown(cell: Cell, beside: Beside) -> str:
    value = f"**{cell.text}**" if cell.best else cell.text
    ends = f"[{cell.interval.replace(' to ', ', ')}]" if cell.interval else ""
    score = cell.score
    place = (score.protocol, score.benchmark, score.run) if score else ("", "", "")
    marks, after = beside.get(place, ("", ""))
    remarks = ", ".join(filter(None, (cell.doubts, after)))
    return " ".join(filter(None, (value + escape(marks), ends, remarks)))


def _remarks(table: ScoreTable) -> list[str]:
    """Say which scores count rows without a usable text or are certified, and what is left out."""
    scores = table.scores
    remarks = [
        f"{escape(score.run)} on {escape(score.benchmark)}: {score.missing} missing, {score.empty}"
        f" empty, {score.failed} failed, counted as wrong."
        for score in scores
        if score.missing or score.empty or score.failed
    ]
    remarks += [
        f"{escape(score.run)} on {escape(score.benchmark)} is {escape(str(said))}."
        for score in scores
        if (said := score.details.get(CERTIFICATE))
    ]
    excluded = {score.benchmark: score.excluded for score in scores if score.excluded}
    never = {score.benchmark: score.details.get(NEVER_RIGHT) for score in scores}
    remarks += [
        f"{escape(name)}: {count} {NEVER_RIGHT}: no text equals their accepted answers."
        for name, count in never.items()
        if count
    ]
    return remarks + [
        f"{escape(name)}: {count} rows that are few-shot examples of the prompt are left out."
        for name, count in excluded.items()
    ]


def _differences(strict: ScoreTable, published: ScoreTable) -> str:
    rows = [
        [escape(row.run), *map(_points, strict.shown(row), published.shown(other))]
        for row, other in zip(strict.rows, published.rows, strict=True)
    ]
    names = [escape(column.name) for column in strict.columns]
    return markdown_table(["run", *names, *[MACRO_AVERAGE] * strict.averaged], rows)


def _points(strict: Cell, published: Cell) -> str:
    if strict.value is None or published.value is None:
        return ""
    return f"{published.value - strict.value:+.1f}"
