"""What comes from outside stays data: names stay in their folder, text is no markup, no pickle."""

import ast
import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from adafuse.benchmarks.records import read_records
from adafuse.cli import generate
from adafuse.cli.options import with_options
from adafuse.config.benchmarks import SourceConfig
from adafuse.config.config import SAFE_NAME
from adafuse.config.reading import parse_config, read_config
from adafuse.decoding.gate import read_gate
from adafuse.errors import UserError
from adafuse.metrics.audit import Accepted, Audit
from adafuse.metrics.published import read_published
from adafuse.models.adapters import check_lora
from adafuse.models.spec import ModelEntry
from adafuse.report.tables import audit_table, escape
from adafuse.serve.protocol import Conversation, read_request
from adafuse.storage.parquet import read_metadata
from adafuse.storage.yaml_files import DEEPEST, parse_json, parse_yaml
from adafuse.workflow.benchmarks import _name
from adafuse.workflow.layout import ResultsLayout
from tests.support.configuration import values as configuration

ROOT = Path(__file__).parents[1]
values = configuration
HOSTILE = (
    "../../x",
    "a/b",
    "/etc/passwd",
    "..",
    ".x",
    "",
    "a b",
    "a\n",
    "a\0",
    "-rf",
    "a;b",
    "$(x)",
)


@pytest.mark.parametrize("kind", ["models", "benchmarks", "runs"])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_could_leave_the_results_folder_is_refused(
    values: dict[str, Any], kind: str, name: str
) -> None:
    values[kind][name] = next(iter(values[kind].values()))
    with pytest.raises(UserError, match="cannot name a file; use letters") as error:
        parse_config(values)
    assert repr(name) in str(error.value)


@given(st.from_regex(SAFE_NAME, fullmatch=True), st.from_regex(SAFE_NAME, fullmatch=True))
def test_every_name_that_is_taken_stays_in_the_results_folder(benchmark: str, run: str) -> None:
    layout = ResultsLayout("/r/results")
    below = {
        layout.rows(benchmark): 3,
        layout.trace(benchmark, run): 3,
        layout.shard_trace(benchmark, run, 0): 4,
        layout.score("strict", benchmark, run): 4,
        layout.outcomes("strict", benchmark, run): 4,
        layout.experiment(run, "csv"): 2,
        layout.log("merge", benchmark, run): 4,
    }
    for path, depth in below.items():
        assert path.resolve().is_relative_to("/r/results")
        assert len(path.parts) == len(Path("/r/results").parts) + depth


def test_a_model_of_the_hub_names_no_file(values: dict[str, Any]) -> None:
    """Models are known by their names in the configuration; their ids may have any form."""
    values["models"]["hub"] = {"path": "org/../../name", "revision": "abc"}
    with pytest.raises(UserError):
        parse_config(values)


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_a_dataset_s_name_becomes_a_plain_file_name(dataset: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_]*", _name(SourceConfig(dataset=dataset, split="test")))


MARKUP = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[link](javascript:alert(1))",
    "![image](http://x/y.png)",
    "| a | cell | more |",
    "`code` **bold** _it_ ~~gone~~ # no heading",
    "<!-- hidden -->",
    "&lt;b&gt; &amp; \\<b>",
    "http://example.org <a@b.c>",
)


def rendered(markdown: str) -> str:
    return MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown)


def shown(text: str) -> str:
    """What a reader sees of HTML without markup of any kind in it."""
    assert not re.search(r"<(?!/?t[drh]\b)", text), text
    return html.unescape(re.sub(r"<[^>]*>", "", text)).strip()


@given(st.one_of(st.sampled_from(MARKUP), st.text()))
def test_escaped_text_is_shown_as_it_is(text: str) -> None:
    cell = f"| x {escape(text)} x |"
    page = rendered(f"| head |\n| --- |\n{cell}\n")
    assert page.count("<td>") == 1
    seen = shown(page.split("<td>")[1].split("</td>")[0])
    assert " ".join(seen.split()) == " ".join(f"x {text} x".replace("\0", "\ufffd").split())


@pytest.mark.parametrize("text", MARKUP)
def test_text_of_models_is_no_markup_in_the_audit(text: str) -> None:
    found = Audit("qa", "run", 1, 0, 0, 1, (Accepted(text, text, (text,), "substring", text),), 0)
    page = rendered(audit_table([found]).markdown)
    row = page.rsplit("<tr>", 1)[1]
    assert row.count("<td>") == 4
    assert shown(row.split("</tr>")[0]).count(" ".join(text.split())) == 3


def test_every_file_that_writes_markdown_escapes_it() -> None:
    found = set()
    for path in (ROOT / "adafuse").rglob("*.py"):
        text = path.read_text()
        if re.search(r"f[\"']\| \{", text) and path.name != "markdown.py":
            found.add(path.relative_to(ROOT / "adafuse").as_posix())
            assert path.name == "tables.py" or path.name == "suite.py", path
    assert "report/tables.py" in found


def test_nothing_writes_html() -> None:
    for path in (ROOT / "adafuse").rglob("*.py"):
        assert not re.search(r"<(html|body|div|td)\b", path.read_text()), path


FORBIDDEN = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def test_the_package_neither_reads_nor_writes_pickle() -> None:
    """Weights are for transformers to read, which takes pickled ones only where that is allowed."""
    for path in (ROOT / "adafuse").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not {name.split(".")[0] for name in names} & FORBIDDEN, path
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            assert called not in ("torch.save", "torch.load", "np.load", "numpy.load"), path
            assert not called.endswith((".to_pickle", ".read_pickle")), path


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("x" * 300, "has 300 characters; a name has at most 100"),
        ("llama.parquet", "ends like a file of results; rename it"),
        ("llama.journal", "ends like a file of results; rename it"),
    ],
)
@pytest.mark.parametrize("kind", ["models", "benchmarks", "runs"])
def test_a_name_that_no_file_can_have_is_refused(
    values: dict[str, Any], kind: str, name: str, sentence: str
) -> None:
    values[kind][name] = next(iter(values[kind].values()))
    with pytest.raises(UserError, match=sentence):
        parse_config(values)


@pytest.mark.parametrize("path", ["results/{x}", "res}ults", "a\0b"])
def test_a_results_folder_that_snakemake_cannot_take_is_refused(
    values: dict[str, Any], path: str
) -> None:
    values["results"] = path
    with pytest.raises(UserError, match="which Snakemake cannot take; rename it"):
        parse_config(values)


def deep(levels: int, opening: str = "[", closing: str = "]") -> str:
    """A list of lists, or an object of objects (`{"a":`), of so many levels."""
    return opening * levels + "1" + closing * levels


READERS: dict[str, Callable[[Path, str], object]] = {
    "a configuration in YAML": lambda path, text: read_config(written(path / "c.yaml", text)),
    "a configuration in JSON": lambda path, text: read_config(written(path / "c.json", text)),
    "records in JSON": lambda path, text: [*read_records(written(path / "r.json", text), "file")],
    "records in lines": lambda path, text: [*read_records(written(path / "r.jsonl", text), "file")],
    "an option": lambda path, text: with_options({}, [f"x={text}"]),
    "a request": lambda path, text: read_request(Conversation, text.encode()),
    "prompts": lambda path, text: generate._object(text, "prompts, line 1"),
    "a gate": lambda path, text: read_gate(str(written(path / "gate.json", text))),
    "an adapter": lambda path, text: check_lora(
        ModelEntry(path="m", adapter=str(written(path / "adapter_config.json", text).parent))
    ),
    "published numbers": lambda path, text: read_published(written(path / "p.yaml", text)),
}


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("levels", [DEEPEST + 2, 50_000])
@pytest.mark.parametrize("reader", READERS)
def test_what_is_nested_too_deeply_is_one_sentence_of_every_reader(
    tmp_path: Path, reader: str, levels: int
) -> None:
    text = f'{{"messages": {deep(levels)}}}'
    with pytest.raises(UserError) as error:
        READERS[reader](tmp_path, text)
    assert "\n" not in str(error.value) and len(str(error.value)) < 600


@pytest.mark.parametrize(
    "text", [deep(DEEPEST), deep(DEEPEST, '{"a":', "}")], ids=["lists", "objects"]
)
def test_what_is_nested_less_is_read(text: str) -> None:
    assert parse_json(text) == parse_yaml(text) == json.loads(text)
    too_deep = f"nested more than {DEEPEST} deep; flatten it"
    with pytest.raises(ValueError, match=too_deep):
        parse_json(f"[{text}]")
    with pytest.raises(yaml.YAMLError, match=too_deep):
        parse_yaml(f"[{text}]")


def test_a_yaml_list_that_holds_itself_is_refused() -> None:
    with pytest.raises(yaml.YAMLError, match="nested more than"):
        parse_yaml("a: &x [*x]")
    laughs = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 60))
    assert parse_yaml("a0: &a0 [1]\n" + laughs)["a1"] == [[1]] * 9, "no list is looked at twice"


@pytest.mark.parametrize("value", [b"7", b"{", b"[" * 100_000, b"\xff"])
def test_foreign_metadata_of_a_parquet_file_is_one_sentence(tmp_path: Path, value: bytes) -> None:
    table = pa.table({"id": ["a"]}).replace_schema_metadata({b"adafuse": value})
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(UserError, match="was not written by adafuse; give a file that was"):
        read_metadata(tmp_path / "t.parquet")
