"""`adafuse show`: examples of a trace in terminals of any width, and for machines."""

import json
import re
from dataclasses import replace

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from adafuse.benchmarks.shards import PreparedRow, write_prepared
from adafuse.cli.generate import PromptRow, decode_rows, load
from adafuse.cli.main import app
from adafuse.models.spec import model_specs
from adafuse.storage.parquet import as_table, read_arrow, write_arrow
from adafuse.storage.traces import PROMPT_FIELDS, result_from, write_trace
from adafuse.workflow.layout import ResultsLayout
from tests.cli.terminal import adafuse
from tests.conftest import toy_path

MODELS = [toy_path("mistral"), toy_path("llama")]
PROMPTS = {"first": "Question: Who?\nAnswer:", "second": "\x1b[31mred 漢"}


def row(name, text):
    return PromptRow(id=name, prompt=text)


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A trace of two examples, one of them with an escape sequence in its prompt."""
    path = tmp_path_factory.mktemp("show") / "out.parquet"
    rows = [row(name, text) for name, text in PROMPTS.items()]
    ensemble = load(model_specs(MODELS, device="cpu"))
    done = decode_rows(ensemble, rows, {"max_new_tokens": 10}, None, None)
    settings = {"models": MODELS, "chat_date": [], "method": "adafuse"}
    write_trace(path, as_table(PROMPT_FIELDS, done), settings, {})
    return path


def show(trace, *options, columns=80, status=0):
    done = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, ["show", str(trace), *options])
    assert done.exit_code == status, done.output
    return done.stdout


def test_the_first_example_is_shown_with_its_prompt(trace):
    told = show(trace)
    assert "example first" in told
    assert "prompt: Question: Who?\\nAnswer:" in told
    assert "model 1: " in told
    assert "round 1" in told
    assert "example second" not in told


def test_a_trace_of_the_workflow_gets_the_prompts_beside_it(trace, tmp_path):
    layout, rows = ResultsLayout(tmp_path / "results"), read_arrow(trace)
    path = layout.trace("qa", "both")
    path.parent.mkdir(parents=True)
    prepared = [PreparedRow(name, text, "Who?") for name, text in PROMPTS.items()]
    table = rows.drop_columns("prompt").append_column("benchmark", pa.array(["qa"] * len(rows)))
    digests = pa.array([row.prompt_sha256 for row in prepared])
    write_arrow(path, table.append_column("prompt_sha256", digests), {})
    assert "prompt: " not in show(path)
    write_prepared(layout.rows("qa"), [replace(prepared[0], prompt="Another one?"), prepared[1]])
    assert "prompt: " not in show(path)
    write_prepared(layout.rows("qa"), prepared)
    assert "prompt: Question: Who?\\nAnswer:" in show(path)
    assert json.loads(show(path, "--json"))["prompt"] == "Question: Who?\nAnswer:"


@pytest.mark.parametrize(
    "metadata",
    [
        {"settings": {"models": ["base", "base"], "adapter": ["law", "art"]}},
        {"shards": [{"job": {"models": [{"path": "base", "adapter": {"path": "law"}}]}}]},
    ],
)
def test_models_are_shown_with_their_adapters(trace, tmp_path, metadata):
    write_arrow(tmp_path / "out.parquet", read_arrow(trace), metadata)
    assert "model 0: base + law\n" in show(tmp_path / "out.parquet")


def test_several_examples_are_shown_in_the_order_asked(trace):
    told = show(trace, "--id", "second", "--id", "first")
    assert told.index("example second") < told.index("example first")


def test_a_round_is_shown_alone(trace):
    told = show(trace, "--round", "2")
    assert "round 2" in told
    assert "round 1" not in told
    assert "text: " not in told


def test_control_characters_of_a_text_do_nothing_to_a_terminal(trace):
    told = show(trace, "--id", "second")
    assert "\x1b[31m" not in told
    assert "prompt: \\x1b[31mred 漢" in told


def test_a_narrow_terminal_gets_lines_instead_of_a_table(trace):
    told = show(trace, columns=40)
    assert "┃" not in told
    assert "by 0, F " in told
    assert all(len(line) <= 40 for line in told.split("\n"))
    assert "┃" in show(trace)


def test_examples_are_listed(trace):
    lines = show(trace, "--list").strip("\n").split("\n")
    assert [line.split("  ")[0] for line in lines] == ["first", "second"]
    rows = [json.loads(line) for line in show(trace, "--list", "--json").strip().split("\n")]
    assert [row["id"] for row in rows] == ["first", "second"]


def test_thoughts_are_shown_apart_from_the_answer(trace, tmp_path):
    rows = read_arrow(trace).slice(0, 1).to_pylist()
    rows[0] |= {"text": "<think>Who?</think>\nPaila is it.", "thoughts": 20}
    thinks, older = tmp_path / "thinks.parquet", tmp_path / "older.parquet"
    write_arrow(thinks, as_table(PROMPT_FIELDS, rows), {})
    told = show(thinks, columns=200)
    assert "thoughts (1 of 4 words, not scored): <think>Who?</think>\\n\n" in told
    assert "\nanswer: Paila is it.\n" in told
    assert show(thinks, "--list").endswith("  Paila is it.\n")
    page = result_from(rows[0])._repr_html_()
    assert "<summary>thoughts (1 of 4 words, not scored)</summary>" in page
    assert "<b>Paila is it.</b>" in page
    write_arrow(older, read_arrow(thinks).drop_columns(["thoughts"]), {})
    assert show(older, "--list").endswith("<think>Who?</think>\\nPaila is it.\n")


@pytest.mark.parametrize("lengths", [[7.0, None], [7.0, float("nan")]])
def test_a_trace_that_pandas_has_saved_is_listed(trace, tmp_path, lengths):
    table, path = read_arrow(trace), tmp_path / "saved.parquet"
    place, answer = table.column_names.index("thoughts"), "<think>Paila"
    table = table.set_column(place, "thoughts", pa.array(lengths, pa.float64()))
    texts = pa.array([answer, answer])
    write_arrow(path, table.set_column(table.column_names.index("text"), "text", texts), {})
    ends = [line.split("  ")[-1] for line in show(path, "--list").strip().split("\n")]
    assert ends == ["Paila", answer]


def test_characters_that_a_terminal_cannot_write_are_spelt(trace):
    done = adafuse("show", trace, "--id", "second", encoding="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "red \\u6f22" in done.stdout


def test_json_is_the_row_of_the_trace(trace):
    (row,) = map(json.loads, show(trace, "--json", "--id", "second").strip().split("\n"))
    assert row["id"] == "second"
    assert row["rounds"][0]["candidates"]
    one = json.loads(show(trace, "--json", "--round", "2"))
    assert (one["round"], len(one["rounds"])) == (2, 1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--id", "secnd"], "no example 'secnd' in .*; did you mean 'second'?"),
        (["--round", "99"], "example 'first' has no round 99; it has"),
        (["--list", "--id", "second"], "--list shows all examples; leave out --id and --round"),
        (["--list", "--round", "1"], "--list shows all examples; leave out --id and --round"),
    ],
)
def test_what_is_not_there_is_named(trace, options, sentence):
    done = CliRunner().invoke(app, ["show", str(trace), *options])
    assert done.exit_code != 0
    assert re.search(sentence, str(done.exception))


@pytest.mark.parametrize(
    ("column", "values", "sentence"),
    [
        ("stop_reason", None, "'out.parquet' has no column 'stop_reason'; give a file of adafuse"),
        ("id", [0, 1], "column 'id' of 'out.parquet' has type int64, not text; give a file of"),
        ("text", ["a", None], "out.parquet, row 1 (counted from 0): text is None; give a file of"),
        ("seconds", ["a", "b"], "example 'first' has 'a' as seconds; give a file of adafuse"),
        ("id", ["a", "a"], "'out.parquet' has id 'a' twice; give a trace with each row once"),
    ],
)
def test_a_trace_that_was_changed_elsewhere_is_one_sentence(
    trace, tmp_path, monkeypatch, column, values, sentence
):
    monkeypatch.chdir(tmp_path)
    table = read_arrow(trace).drop_columns(column)
    table = table if values is None else table.append_column(column, pa.array(values))
    write_arrow(tmp_path / "out.parquet", table, {})
    listed = values in (None, [0, 1], ["a", None])  # a list shows the others
    for options in ([], ["--list"])[: 1 + listed]:
        done = CliRunner().invoke(app, ["show", "out.parquet", *options])
        assert sentence in str(done.exception)


def test_a_file_that_is_no_trace_is_not_to_be_deleted(tmp_path):
    (tmp_path / "main.csv").write_text("run\n")
    done = CliRunner().invoke(app, ["show", str(tmp_path / "main.csv")])
    assert "main.csv' is not a trace; give a .parquet file" in str(done.exception)
    (tmp_path / "torn.parquet").write_text("PAR1")
    done = CliRunner().invoke(app, ["show", str(tmp_path / "torn.parquet")])
    assert "delete it to have it made again" in str(done.exception)
