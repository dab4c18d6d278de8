"""What `Ensemble.generate` returns, as a list, as tables and as a reader sees it."""

import copy
import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from adafuse import Chat, Result, Results, UserError
from adafuse.cli.main import app
from adafuse.decoding.words import StopAfter
from adafuse.storage.parquet import read_metadata, read_rows
from adafuse.storage.traces import ORIGIN, result_from

CHAT = [{"role": "user", "content": "Who?"}]
PROMPTS = ["Question: Who?\nAnswer:", CHAT]


@pytest.fixture(scope="module")
def results(pair):
    return pair.generate(PROMPTS, max_new_tokens=6, stop=["\n"], branching=2)


def test_results_are_a_list(results, pair):
    assert isinstance(results, list)
    assert isinstance(results, Results)
    assert [r.text for r in results] == [
        r.text for _, r in sorted(pair.stream(PROMPTS, max_new_tokens=6, stop=["\n"], branching=2))
    ]


def test_every_table_has_the_rows_of_a_trace(results, tmp_path):
    results.to_parquet(tmp_path / "out.parquet")
    rows = read_rows(tmp_path / "out.parquet")
    assert [row["id"] for row in rows] == ["1", "2"]
    assert [row["prompt"] for row in rows] == [PROMPTS[0], json.dumps(CHAT)]
    assert [result_from(row) for row in rows] == results
    assert results.to_arrow().to_pylist() == rows
    assert results.to_polars().to_dicts() == rows
    assert results.to_pandas()["text"].tolist() == [result.text for result in results]
    assert read_metadata(tmp_path / "out.parquet").keys() == {"settings", *ORIGIN}
    settings = read_metadata(tmp_path / "out.parquet")["settings"]
    assert (settings["branching"], settings["method"], settings["stop"]) == (2, "adafuse", ["\n"])
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "out.parquet"), "--id", "2"])
    assert shown.exit_code == 0
    assert "example 2" in shown.stdout


def test_results_keep_their_prompts_in_any_order(results, pair):
    before = {row["prompt"]: row["text"] for row in results.to_arrow().to_pylist()}
    others = pair.generate(PROMPTS, max_new_tokens=6, stop=["\n"], branching=2)
    others.reverse()
    after = others.to_arrow().to_pylist()
    assert {row["prompt"]: row["text"] for row in after} == before
    assert [row["id"] for row in after] == ["2", "1"]
    del others[0]
    assert [row["id"] for row in others.to_arrow().to_pylist()] == ["1"]
    others.append(results[0])
    with pytest.raises(UserError, match="is a result of another call; make one table for each"):
        others.to_arrow()


def test_a_copy_and_a_part_of_them_keep_their_prompts(results):
    rows = results.to_arrow().to_pylist()
    pickled = pickle.loads(pickle.dumps(results))
    for copied in (pickled, copy.deepcopy(results), results[:], results.copy()):
        assert copied == results
        assert copied.to_arrow().to_pylist() == rows
    assert results[1:].to_arrow().to_pylist() == rows[1:]
    assert results[0] is next(iter(results))


@pytest.mark.parametrize("path", ["~/new/t.parquet", "$HOME/new/t.parquet"])
def test_home_and_variables_of_a_path_are_filled_in(results, tmp_path, monkeypatch, path):
    home, here = tmp_path / "home", tmp_path / "here"
    here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    results.to_parquet(path)
    assert [row["id"] for row in read_rows(home / "new/t.parquet")] == ["1", "2"]
    assert [*here.iterdir()] == []
    assert [file.name for file in home.rglob("*")] == ["new", "t.parquet"]


class Rule:
    """A rule without a name, and without a hash."""

    __hash__ = None

    def __call__(self, candidate, weights):
        return max(candidate.nll)

    def __repr__(self):
        return "Rule()"


def test_any_callable_is_a_rule(pair, tmp_path):
    pair.generate(["a"], max_new_tokens=2, fusion=Rule()).to_parquet(tmp_path / "out.parquet")
    assert read_metadata(tmp_path / "out.parquet")["settings"]["fusion"] == "Rule()"


def test_settings_are_written_as_they_were_read(pair, tmp_path):
    given = {"tau": np.float32(0.5), "stop": (StopAfter(string=".", after="x"),)}
    pair.generate(["a"], max_new_tokens=2, **given).to_parquet(tmp_path / "out.parquet")
    settings = read_metadata(tmp_path / "out.parquet")["settings"]
    assert (settings["tau"], settings["stop"]) == (0.5, [{"string": ".", "after": "x"}])


def test_a_function_is_named_in_the_settings(pair, tmp_path):
    def least(candidate, weights):
        return max(candidate.nll)

    pair.generate(["a"], max_new_tokens=2, fusion=least).to_parquet(tmp_path / "out.parquet")
    assert read_metadata(tmp_path / "out.parquet")["settings"]["fusion"] == "least"


def test_what_is_missing_is_one_sentence(results, tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"'out.csv' does not end in .parquet; give it that ending"):
        results.to_parquet("out.csv")
    with pytest.raises(UserError, match=r"'3' does not end in .parquet; give it that ending"):
        results.to_parquet(3)
    for package, table in (("polars", results.to_polars), ("pandas", results.to_pandas)):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(
            UserError, match=f"{package} is not installed; run pip install {package}"
        ):
            table()


def test_a_result_and_its_rounds_are_short_in_a_shell(results):
    result = results[0]
    rounds = f"{len(result.rounds)} round{'s' * (len(result.rounds) != 1)}"
    assert repr(result) == f"<Result {result.text!r}, {result.stop_reason}, {rounds}>"
    taken = result.rounds[0]
    chosen = taken.candidates[taken.selected].text
    assert repr(taken) == f"<Round {chosen!r}, one of {len(taken.candidates)}>"
    failed = Result("x" * 99, "error", (), (1,), (1,), (1,), 0.1, error="it is too long")
    assert repr(failed) == f"<Result {'x' * 59 + '…'!r}, error: it is too long, 0 rounds>"


def test_show_prints_the_rounds_and_the_text(results, capsys):
    results[0].show()
    told = capsys.readouterr().out
    assert "round 1" in told
    assert "candidate" in told
    assert f"stop reason: {results[0].stop_reason}" in told
    results[0].show(1)
    assert "stop reason" not in capsys.readouterr().out


def test_a_result_says_what_it_continues_and_prints_as_its_text(results, pair):
    assert [(r.id, r.prompt) for r in results] == [("1", PROMPTS[0]), ("2", Chat(CHAT))]
    assert str(results[0]) == results[0].text
    failed = Result("begun ", "error", (), (1,), (1,), (1,), 0.1, error="it is too long")
    assert str(failed) == "begun [error: it is too long]"
    streamed = dict(pair.stream(PROMPTS, max_new_tokens=2))
    assert [(streamed[n].id, streamed[n].prompt) for n in (0, 1)] == [
        (r.id, r.prompt) for r in results
    ]
    spans = pair.stream_text(CHAT, max_new_tokens=2)
    assert "".join(spans) == spans.result.text
    assert (spans.result.id, spans.result.prompt) == ("1", Chat(CHAT))


def test_a_notebook_shows_a_list_of_them_with_prompts_and_the_names_of_the_models(results):
    html = results._repr_html_()
    names = [Path(path).name for path in results.settings["models"]]
    assert all(f"<th>NLL {name}</th>" in html for name in names)
    assert "1: Question: Who?\\nAnswer: <b>" in html
    assert "2: Who? <b>" in html
    odd = Results([Result("<script>", "stop", (), (1,), (1,), (1,), 0.1)] * 25, {}, {})
    assert "<b>&lt;script&gt;</b>" in odd._repr_html_()
    assert "and 5 more" in odd._repr_html_()


def test_a_notebook_shows_them_as_html_and_runs_no_markup_of_a_model(results):
    html = results[0]._repr_html_()
    assert html.count("<details>") == len(results[0].rounds)
    assert "<th>NLL 1</th>" in html
    odd = Result("<script>", "stop", (), (1,), (1,), (1,), 0.1)
    assert "<b>&lt;script&gt;</b>" in odd._repr_html_()
