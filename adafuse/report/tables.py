"""The tables: CSV for programs, Markdown for readers, written in one place."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import chain, groupby, product
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from adafuse.benchmarks.description import Described
from adafuse.config.config import Config
from adafuse.metrics.audit import RULES, Audit, audit
from adafuse.metrics.cofailure import CoFailure
from adafuse.metrics.compare import Comparison
from adafuse.metrics.intervals import FEWEST_ROWS, Estimate
from adafuse.metrics.measures import WordShare
from adafuse.metrics.power import TARGET
from adafuse.metrics.published import Published, PublishedTable
from adafuse.metrics.score import MANY_CUT, read_outcomes
from adafuse.metrics.scorer import PUBLISHED, STRICT, Metric
from adafuse.storage.files import write_text
from adafuse.workflow.layout import ResultsLayout
from adafuse.workflow.stamps import intact

PAPER_TITLE = "## Published by the paper (not measured here)"

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$&])")

_COMPARISON = """\
Each ensemble is compared with each of its models decoding on its own, and with the best baseline:
of all other runs that were decoded, the one that scores best on the same rows, so that it is chosen
with knowledge of the answers. {study}Accuracies are in percent. In parentheses are the share of
answers that `max_new_tokens` or `max_rounds` cut, and the number of rows that failed; the intervals
of scores are in the main table. The difference is run minus other, in points, with its 95 %
interval (accuracies: Newcombe 1998, method 10, for paired proportions; others: middle of 1,000
paired resamples, of {fewest} rows or more). A row without a usable text counts as wrong.

For accuracies, p is that of McNemar's exact two-sided test. For other scores, it is the larger p of
two tests: approximate randomization, and sacrebleu's paired bootstrap (seed 12345), which by itself
finds a difference between two equally good systems about one time in ten. This p is at least
1/1001, so none of these differences can be marked in a table of more than 50 tests. p (Holm) is
adjusted for all tests of its table.

A difference is marked \\* only if p (Holm) is below 0.05 and its interval leaves out 0. It is never
marked if the two runs' shares of cut answers differ by more than {cut:.0f} points; if, for scores
other than accuracies, their shares of failed rows do; or if more than {cut:.0f} % of a run's
answers are scored although they do not fit into `max_new_tokens`. "Only run right" and "only other
right" count the rows on which the two disagree.

The verdict says what these rows show: "better" or "worse" (a marked difference), "less than
{allowed} worse" (not inferior), or "undecided". Undecided does not mean as good: neither a
difference is shown, nor that there is none. "At worst" is the end of the one-sided 95 % interval of
the difference, and in parentheses the one-sided p of "worse by {allowed} or more", which is exact
for accuracies (Hsueh, Liu and Chen 2001), approximate for others (bootstrap), and not adjusted for
the number of tests. "Detectable" is the true difference for which p is below 0.05 in 80 of 100
repetitions, with as many rows, and as many that differ (Connor 1987; p (Holm) needs a larger one);
in parentheses is how many rows a difference of {target:g} needs. "None": with so few rows that
differ, no difference is found as often. "Too few differ", for scores other than accuracies: fewer
than {fewest} rows do.
"""

_SMALL = "‡"

_GAIN = """\
What there is to gain by choosing between the answers of an ensemble's members, and whether the
ensemble goes beyond it. Beta is the share of rows that every member gets wrong, with its exact 95 %
interval (Clopper-Pearson). No method that outputs one member's answer, such as a router or a vote,
scores above the bound 100 - beta (arXiv 2606.27288). A fused text can: "right, all members wrong"
counts how often, of all such rows. "Wrong, all members right" counts what fusing breaks. The best
member is chosen with knowledge of the answers.
"""

_GAIN_COLUMNS = (
    *("benchmark", "run", "n", "best member", "bound", "run's score", "beta"),
    *("right, all members wrong", "wrong, all members right"),
)

_DATASETS = (
    "Mean lengths in characters over the rows of each benchmark as configured; those of the"
    " paper's test sets (appendix C) in parentheses where they are known. The answer is that of all"
    " accepted answers joined by a space, as the paper counts, then of the first one. Shots: rows"
    " that are few-shot examples of the prompt. Repeated: rows with the question of an earlier row,"
    " verbatim and up to case; all are kept. Renamed: rows whose id got a suffix."
)

_DATASET_COLUMNS = (
    *("benchmark", "rows", "paper_rows", "question_chars", "paper_question_chars"),
    *("answer_chars", "paper_answer_chars", "first_answer_chars", "shots_among_rows"),
    *("repeated_questions", "repeated_up_to_case", "renamed_ids"),
)
_DATASET_HEADS = (
    *("benchmark", "rows", "question", "answers", "first answer", "shots", "repeated", "renamed"),
)

_COMPARED = (
    *("run", "against", "role", "verdict", "score", "other", "difference", "p", "p (Holm)"),
    *("at worst (p)", "detectable (rows for {:g})", "only run right", "only other right"),
)

_AUDIT = (
    "Empty answers, right answers under each protocol on the same rows, and by which published rule"
    " those were accepted that strict refuses; `dropped` counts empty translations, which published"
    " leaves out of the corpus."
)
_AUDIT_COLUMNS = (
    *("benchmark", "run", "n", "empty"),
    *("strict", "published", "only_published", "only_strict"),
)
_EXAMPLES = 3
"""Of each rule that the audit shows."""
_LONGEST = 80  # characters of the end of a text


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows as the CSV file has them, and the Markdown that shows them to readers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    markdown: str = ""


def write_table(table: Table, csv_file: Path, markdown_file: Path | None = None) -> None:
    """Write a table as CSV and, if a file is named for it, as Markdown."""
    write_text(csv_file, to_csv(table))
    if markdown_file is not None:
        write_text(markdown_file, table.markdown)


def to_csv(table: Table) -> str:
    """Return the CSV of a table; what is missing is empty.

    Floats have four decimals, seconds six, numbers of characters one; p-values, by which the report
    marks differences, have ten digits. The values of a swept option (`x`) and the paper's numbers
    of characters have all their digits.
    """
    rows = [[_cell(*cell) for cell in zip(table.columns, row, strict=True)] for row in table.rows]
    return "".join(map(_csv_line, [table.columns, *rows]))


def _csv_line(cells: Iterable[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)  # quotes what has either of the two
    return text.getvalue().removesuffix("\r\n") + "\n"


def _cell(column: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, float):
        return str(value)
    if column == "x" or column.startswith("paper_"):
        return repr(value)
    if column.startswith("p_") or column == "p":
        return f"{value:.10g}"
    if column.endswith("_chars"):
        return f"{value:.1f}"
    return f"{value:.6f}" if column.startswith("seconds") else f"{value:.4f}"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], text: int = 1) -> str:
    """Return a Markdown table, whose first `text` columns hold text and the others numbers."""
    rule = ["---"] * text + ["---:"] * (len(head) - text)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *rows))


def escape(text: str) -> str:
    """Escape what Markdown would take for markup; a line break becomes a space."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def doubts(cut: float | None, failed: int, certified: bool | None = None) -> str:
    """Return what stands beside a score: the percentage of answers cut, and rows that failed.

    Of a run that was to be chosen with a certificate, also whether there is one.
    """
    parts = ([] if cut is None else [f"{cut:.1f} % cut"]) + [f"{failed} failed"] * bool(failed)
    parts += [] if certified is None else ["certified" if certified else "not certified"]
    return ", ".join(parts)


def comparison_table(
    comparisons: Sequence[Comparison],
    no_single: Mapping[str, Sequence[str]],
    study: Sequence[str] = (),
) -> Table:
    """Return a row per comparison; the Markdown has a table per benchmark and protocol.

    Above them, each protocol has a table of every ensemble against the best of its own models.
    `no_single` has by ensemble the models that no run of method single decodes with; runs under
    `study` are no baselines of each other.
    """
    groups = groupby(comparisons, key=lambda test: (test.benchmark, test.protocol))
    parts = [_comparison_section(list(group)) for _, group in groups]
    parts = parts or ["No run has more than one model, so nothing is compared.\n"]
    by_protocol: dict[str, list[Comparison]] = {}
    for test in comparisons:
        by_protocol.setdefault(test.protocol, []).append(test)
    parts = [*map(best_members_section, by_protocol.values()), *parts]
    parts += [
        f"- {escape(run)} is not compared with {escape(', '.join(models))}: no run of method single"
        " uses it with as many rounds, so nothing is said of the best of its models.\n"
        for run, models in no_single.items()
    ]
    columns = [field.name for field in fields(Comparison)]
    apart = f"Under study, and no baselines of each other: {escape(', '.join(study))}. " * bool(
        study
    )
    allowed = comparisons[0].allowed if comparisons else "the margin"
    legend = _COMPARISON.format(
        study=apart, fewest=FEWEST_ROWS, cut=MANY_CUT, allowed=allowed, target=TARGET
    )
    text = "\n".join(["# Paired comparisons\n", legend, *parts])
    return Table(columns, list(map(astuple, comparisons)), text)


def read_comparisons(text: str) -> list[Comparison]:
    """Read the CSV of a comparison table; numbers have lost the digits that it leaves out."""
    rows = csv.DictReader(io.StringIO(text))
    plain = [{name: value or None for name, value in row.items()} for row in rows]
    return TypeAdapter(list[Comparison]).validate_python(plain)


def best_members_section(comparisons: Sequence[Comparison]) -> str:
    """Return a row per ensemble: what it gains over the best of its models on each benchmark.

    Which model is the best is not known: a run is not inferior to it if it is to none of them.
    """
    tests: dict[str, dict[str, list[Comparison]]] = {}
    for test in comparisons:
        if test.role == "member":
            tests.setdefault(test.run, {}).setdefault(test.benchmark, []).append(test)
    if not tests:
        return "No run is compared with each of its models.\n"
    benchmarks = dict.fromkeys(test.benchmark for test in comparisons)
    cells = {
        (run, name): _against(tests[run][name]) if name in tests[run] else ("", "")
        for run, name in product(tests, benchmarks)
    }
    rows = [[escape(run), *(cells[run, name][0] for name in benchmarks)] for run in tests]
    doubted = {
        f"- {_SMALL} on {escape(name)} says little: {escape(doubt)}.\n": None
        for (run, name), (cell, _) in cells.items()
        if cell.endswith(_SMALL) and (doubt := _best(tests[run][name]).doubt)
    }
    counts = Counter(verdict for _, verdict in cells.values() if verdict)
    neither = counts["small"] + counts["undecided"]
    parts = (
        f" ({counts['small']} {_SMALL}, {counts['undecided']} undecided, which does not mean as"
        " good)"
    )
    return "\n".join(
        [
            f"## Against the best of its models, {escape(comparisons[0].protocol)} scoring\n",
            "The model is chosen with knowledge of the answers. Gains (\\*):"
            f" {counts['gain']} of {counts.total()}; losses (\\*): {counts['loss']}; neither:"
            f" {neither}{parts * bool(neither)}. {_SMALL}: shown to be less than"
            f" {comparisons[0].allowed} worse than every member.\n",
            markdown_table(("run", *map(escape, benchmarks)), rows),
            *doubted,
        ]
    )


def _against(members: Sequence[Comparison]) -> tuple[str, str]:
    """Return the cell of a run against its best member, and what is shown of the two."""
    test = _best(members)
    counts = ((test.run, test.failed), (test.against, test.other_failed))
    failed = [f"{escape(run)}: {count} failed" for run, count in counts if count]
    note = f" ({', '.join(failed)})" if failed else ""
    better = test.significant and test.gain > 0
    small = not better and all(member.noninferior for member in members)
    cell = f"{_difference(test)} {escape(test.against)}{note}" + f" {_SMALL}" * small
    if test.significant:
        return cell, "gain" if better else "loss"
    return cell, "small" if small else "undecided"


def _best(members: Sequence[Comparison]) -> Comparison:
    """Return the comparison of a run with the member that scores best."""
    return min(members, key=lambda test: test.gain)


def _difference(test: Comparison) -> str:
    mark = r" \*" if test.significant else ""
    estimate = Estimate(test.difference, test.low, test.high)
    return f"{test.difference:+.1f}{estimate.ends(form=' [{}, {}]', sign='+')}{mark}"


def _comparison_section(group: Sequence[Comparison]) -> str:
    first = group[0]
    title = f"{escape(first.benchmark)}, {escape(first.protocol)} scoring"
    metric = escape(first.metric) + ", lower is better" * (not first.higher_is_better)
    heading = f"## {title} ({metric}, {first.test}, n = {first.n})\n"
    head = [name.format(TARGET) for name in _COMPARED]
    return "\n".join([heading, markdown_table(head, map(_comparison_row, group), text=4)])


def _comparison_row(test: Comparison) -> list[str]:
    return [
        escape(test.run),
        escape(test.against),
        test.role,
        test.verdict,
        _doubted(test.value, doubts(test.cut, test.failed)),
        _doubted(test.other, doubts(test.other_cut, test.other_failed)),
        _difference(test),
        *map(shown_p, (test.p, test.p_holm)),
        _at_worst(test),
        _detectable(test),
        *("" if count is None else str(count) for count in (test.wins, test.losses)),
    ]


def shown_p(p: float) -> str:
    """Return a p-value for a reader."""
    return r"\< 0.001" if p < 0.001 else f"{p:.3f}"


def _at_worst(test: Comparison) -> str:
    if test.worst is None or test.p_noninferior is None:
        return "too few differ"
    return f"{test.worst:+.1f} ({shown_p(test.p_noninferior)})"


def _detectable(test: Comparison) -> str:
    if test.rows_needed is None:
        return ""
    size = "none" if test.detectable is None else f"{test.detectable:.1f}"
    return f"{size} ({test.rows_needed:,})"


def _doubted(score: float, beside: str) -> str:
    return f"{score:.1f} ({beside})" if beside else f"{score:.1f}"


def gain_table(cells: Sequence[CoFailure], metrics: Mapping[str, Metric]) -> Table:
    """Return a row per ensemble, benchmark and protocol.

    `metrics` are those of all benchmarks; those without right and wrong rows are named below.
    """
    parts = ["# What there is to gain\n", _GAIN]
    for protocol, group in groupby(cells, key=lambda cell: cell.protocol):
        rows = map(_gain_row, group)
        parts += [f"## {protocol.capitalize()} scoring\n", markdown_table(_GAIN_COLUMNS, rows, 2)]
    if not cells and any(metric.binary for metric in metrics.values()):
        parts.append("No ensemble has a run of method single for each of its models.\n")
    parts += [
        f"- {escape(name)}: {escape(metric.label)} has no right and wrong rows, so there is no"
        " co-failure.\n"
        for name, metric in metrics.items()
        if not metric.binary
    ]
    names = [field.name for field in fields(CoFailure)]
    return Table(names, list(map(astuple, cells)), "\n".join(parts))


def _gain_row(cell: CoFailure) -> list[str]:
    beta = f"{cell.beta:.1f} [{cell.beta_low:.1f}, {cell.beta_high:.1f}]"
    scores = [f"{score:.1f}" for score in (cell.best, cell.bound, cell.value)]
    counts = f"{cell.gained} of {cell.all_wrong}", f"{cell.lost} of {cell.all_right}"
    return [escape(cell.benchmark), escape(cell.run), str(cell.n), *scores, beta, *counts]


def words_table(shares: Sequence[WordShare]) -> Table:
    """Return a row per benchmark, run and number of words."""
    return Table([field.name for field in fields(WordShare)], list(map(astuple, shares)))


def datasets_table(lines: Sequence[Described]) -> Table:
    """Return a row per benchmark; what the paper does not say is empty."""
    rows, cells = [], []
    for line in lines:
        ours, paper = line.ours, line.paper
        lengths = [ours.question_chars, ours.answer_chars, ours.first_answer_chars]
        counts = [ours.shots, ours.repeated, ours.repeated_up_to_case, ours.renamed]
        values = [ours.rows, *lengths[:2]], [paper.rows, paper.question_chars, paper.answer_chars]
        pairs = list(zip(*values, strict=True))
        rows.append([line.benchmark, *chain.from_iterable(pairs), lengths[2], *counts])
        shots, repeated, up_to_case, renamed = map(str, counts)
        last = f"{lengths[2]:.1f}", shots, f"{repeated}, {up_to_case}", renamed
        cells.append([escape(line.benchmark), *(_beside_paper(*pair) for pair in pairs), *last])
    text = markdown_table(_DATASET_HEADS, cells)
    return Table(_DATASET_COLUMNS, rows, f"{text}\n{_DATASETS}\n")


def _beside_paper(ours: float, paper: float | None) -> str:
    text = f"{ours:.1f}" if isinstance(ours, float) else str(ours)
    return text if paper is None else f"{text} ({paper})"


def stored_audits(config: Config) -> list[Audit]:
    """Compare both protocols for every benchmark and run, in the order of the configuration."""
    layout = ResultsLayout(config.results)
    return [
        audit(
            read_outcomes(intact(layout.outcomes(STRICT, name, run))),
            read_outcomes(intact(layout.outcomes(PUBLISHED, name, run))),
            config.benchmarks[name].scorer,
            benchmark=name,
            run=run,
        )
        for name in config.main_benchmarks
        for run in config.main_runs
    ]


def audit_table(audits: Sequence[Audit]) -> Table:
    """Return counts per benchmark and run, a column per rule; the Markdown has examples too."""
    rows = [_audit_row(audited) for audited in audits]
    head = [*(name.replace("_", " ") for name in _AUDIT_COLUMNS), *RULES]
    cells = [["" if cell is None else escape(str(cell)) for cell in row] for row in rows]
    parts = ["# What only the published scorer accepts\n", markdown_table(head, cells, text=2)]
    text = "\n".join([*parts, f"{_AUDIT}\n", *filter(None, map(_audit_examples, audits))])
    return Table([*_AUDIT_COLUMNS, *(f"rule_{rule}" for rule in RULES)], rows, text)


def _audit_row(audited: Audit) -> list[Any]:
    right = [audited.strict, audited.published, len(audited.accepted), audited.only_strict]
    rules = [audited.rules[rule] for rule in RULES]
    return [audited.benchmark, audited.run, audited.n, audited.empty, *right, *rules]


def _audit_examples(audited: Audit) -> str:
    rows = []
    for rule in RULES:
        answers = [one for one in audited.accepted if one.rule == rule and one.text.strip()]
        rows += [
            (rule, escape(answer.id), _end(answer.text), _end(answer.gold))
            for answer in answers[:_EXAMPLES]
        ]
    if not rows:
        return ""
    table = markdown_table(("rule", "id", "prediction", "gold"), rows, text=4)
    return f"## {escape(audited.run)} on {escape(audited.benchmark)}\n\n{table}"


def _end(text: str) -> str:
    return escape(text if len(text) <= _LONGEST else f"…{text[-_LONGEST:]}")


def published_section(published: Published, benchmarks: Sequence[str], protocol: str) -> str:
    """Return the paper's tables, of those of `benchmarks` that they have; empty if they have none.

    The paper's numbers never share a column with ours: these are tables of their own, and they say
    whether they can be compared with the table above them, whose scores are of `protocol`.
    """
    parts = [_published_table(table, benchmarks) for table in published.tables]
    if not any(parts):
        return ""
    text = "\n".join([PAPER_TITLE, "", f"{_preamble(published, protocol)}\n", *filter(None, parts)])
    note = f"\n\\* {escape(published.note)}\n"
    return text + (note if any("\\*" in part for part in parts) else "")


def _published_table(paper: PublishedTable, benchmarks: Sequence[str]) -> str:
    names = [name for name in benchmarks if name in paper.benchmarks]
    if not names:
        return ""
    whole = set(names) == set(paper.benchmarks)
    with_averages = whole and all(row.printed_average is not None for row in paper.rows)
    rows = []
    for row in paper.rows:
        cells = [f"{row.values[paper.benchmarks.index(name)]:.2f}" for name in names]
        mark = r" \*" if row.flagged else ""
        if with_averages:
            cells += [f"{average:.2f}{mark}" for average in (row.printed_average, row.average)]
        rows.append([escape(row.name), *cells])
    heads = ["average as printed", "average of the cells"] * with_averages
    table = markdown_table(["row", *map(escape, names), *heads], rows)
    return f"### {escape(paper.title)}\n\nSetting: {escape(paper.setting)}.\n\n{table}"


def _preamble(published: Published, protocol: str) -> str:
    same = protocol == published.protocol
    verdict = "as the table above" if same else f"not {escape(protocol)} as the table above"
    return (
        f"From {escape(published.source)}. In percent; the paper gives neither intervals nor"
        f" numbers of rows. Its scorer corresponds to the protocol"
        f" {escape(published.protocol)}, {verdict}: compare these numbers only with runs scored"
        f" under {escape(published.protocol)}."
    )
