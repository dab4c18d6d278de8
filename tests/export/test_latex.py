"""Tables as LaTeX: what Markdown says in a form that compiles, whatever names hold."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from adafuse.export.latex import _PREVIEW, escape, to_latex

TABLE = r"""# Scores

Legend with `code`, \* a mark, and "two
words".

| run | qa (EM, n = 60) | p (Holm) |
| --- | ---: | ---: |
| a\_b | **93.3**\* [84.1, 97.4] 0.0 % cut, 2 failed | 0.010 |
| c & d | -5.0 [-13.6, +2.2] \* m ‡ | \< 0.001 |

## Another

| x |
| --- |
| 80.0 (0.0 % cut) |
"""


def rows(text: str) -> list[str]:
    body = text.partition("\\midrule\n")[2].partition("\\bottomrule")[0]
    return body.replace("\\addlinespace\n", "").splitlines()


def test_a_table_is_a_float_with_its_heading_above_and_its_text_below() -> None:
    first, second = to_latex(TABLE, "tab:x").split("\n\n")
    assert "\\caption{Scores}\n\\label{tab:x}\n" in first
    assert "\\begin{tabular}{lrr}\n\\toprule\nrun & \\begin{tabular}" in first
    note = "Legend with \\texttt{code}, \\textsuperscript{*} a mark, and ``two\nwords''."
    assert note in first.partition("\\bottomrule")[2]
    assert "\\caption{Another}\n\\label{tab:x-2}\n" in second
    assert rows(second) == ["80.0 \\\\"]


def test_the_best_is_bold_and_intervals_and_remarks_stand_below_the_number() -> None:
    one, two = rows(to_latex(TABLE, "tab:x").split("\n\n")[0])
    assert one == (
        "a\\_b & \\begin{tabular}[t]{@{}r@{}}\\textbf{93.3}\\textsuperscript{*}"
        "\\\\{\\scriptsize {[}84.1, 97.4{]}}\\\\{\\scriptsize 2 failed}\\end{tabular} & 0.010 \\\\"
    )
    assert two == (
        "c \\& d & \\begin{tabular}[t]{@{}r@{}}$-$5.0\\textsuperscript{*}"
        "\\\\{\\scriptsize {[}$-$13.6, +2.2{]}}\\\\{\\scriptsize m \\textsuperscript{\\ddag}}"
        "\\end{tabular} & \\textless{} 0.001 \\\\"
    )


def test_columns_of_p_values_are_left_out_unless_they_are_wanted() -> None:
    text = to_latex(TABLE, "tab:x", ("p (Holm)",)).split("\n\n")[0]
    assert "\\begin{tabular}{lr}" in text
    assert "0.010" not in text


def test_every_character_of_ascii_is_text() -> None:
    assert escape("a_b 50 % {x} ~ ^ \\ # $ &") == (
        "a\\_b 50 \\% \\{x\\} \\textasciitilde{} \\textasciicircum{} \\textbackslash{} \\# \\$ \\&"
    )
    assert escape("x--y, a-1, -1") == "x-{}-y, a-1, $-$1"
    assert escape("a---b, x--5, [-2]") == "a-{}-{}-b, x-{}-5, {[}$-$2{]}"
    assert escape("''a'', ,,b") == "'{}'a'{}', ,{},b"
    assert escape("a *b* c, 1.5*") == r"a *b* c, 1.5\textsuperscript{*}"


def test_it_compiles(tmp_path: Path) -> None:
    if (program := shutil.which("pdflatex")) is None:
        pytest.skip("pdflatex is not installed")
    odd = "".join(map(chr, range(33, 127)))
    cells = re.sub(r"([\\`*_\[\]<>|~$&])", r"\\\1", odd)
    table = to_latex(f"{TABLE}| {cells} † ‡ |\n", "tab:x")
    (tmp_path / "preview.tex").write_text(_PREVIEW % table, encoding="utf-8")
    line = [program, "-interaction=nonstopmode", "-halt-on-error", "preview.tex"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
