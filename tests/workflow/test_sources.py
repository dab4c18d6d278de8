"""Datasets as sources of a benchmark: fetched once, then planned from without them."""

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from adafuse.config.reading import parse_config
from adafuse.errors import UserError
from adafuse.models import files as identity
from adafuse.workflow import benchmarks as sources
from adafuse.workflow.benchmarks import (
    UnavailableSourceError,
    benchmark_rows,
    source_file,
)
from adafuse.workflow.plan import Plan

ROOT = Path(__file__).parents[2]


@pytest.fixture
def from_dataset(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """The configuration with a dataset folder as source."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    write(tmp_path / "data", "a")
    source = {"dataset": str(tmp_path / "data"), "split": "test", "fields": {"id": "key"}}
    values["benchmarks"]["qa"]["source"] = source
    return values


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetch here: what a process of its own adds is asserted where a dataset is fetched once."""
    monkeypatch.setattr(sources, "_fetch", sources.fetch)


def write(folder: Path, answer: str) -> None:
    folder.mkdir(exist_ok=True)
    rows = [{"key": f"r{n}", "question": f"q{n}?", "answer": f"{answer}{n}"} for n in range(12)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "test-00000-of-00001.parquet")


def test_a_dataset_is_fetched_once_and_its_rows_are_those_of_a_file(
    from_dataset: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = Plan.of(from_dataset)
    assert f"reading dataset {tmp_path / 'data'} from its folder, once" in caplog.text
    file = source_file(plan.config, "qa")
    assert file.parent == tmp_path / "results/sources"
    assert [row.id for row in plan.prepared("qa").rows] == [f"r{n}" for n in range(12)]
    monkeypatch.setattr(sources, "_fetch", None)
    again = Plan.of(from_dataset)
    assert source_file(again.config, "qa") == file
    assert again.prepared("qa") == plan.prepared("qa")


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("damage", [b"", b'{"question": "q", "answer": "x"}\n', b"\xff"])
def test_a_damaged_copy_of_a_dataset_is_fetched_again(
    from_dataset: dict[str, Any], damage: bytes
) -> None:
    plan = Plan.of(from_dataset)
    file = source_file(plan.config, "qa")
    whole = file.read_bytes()
    file.write_bytes(damage)
    assert Plan.of(from_dataset).prepared("qa") == plan.prepared("qa")
    assert file.read_bytes() == whole


@pytest.mark.usefixtures("in_process")
def test_other_content_or_fields_are_fetched_again(
    from_dataset: dict[str, Any], tmp_path: Path
) -> None:
    config = parse_config(from_dataset)
    first = source_file(config, "qa")
    write(tmp_path / "data", "b")
    identity.content_digest.cache_clear()  # a folder is read once per process
    second = source_file(config, "qa")
    assert first != second
    assert benchmark_rows(config, "qa")[0].answers == ("b0",)
    from_dataset["benchmarks"]["qa"]["source"]["fields"]["answer"] = "question"
    assert source_file(parse_config(from_dataset), "qa") not in (first, second)


CARD = """---
configs:
- config_name: default
  data_files: [{{split: test, path: {path}}}]
---
"""


@pytest.mark.usefixtures("in_process")
def test_the_card_of_a_folder_decides_its_rows(
    from_dataset: dict[str, Any], tmp_path: Path
) -> None:
    config, data = parse_config(from_dataset), tmp_path / "data"
    (data / "one").mkdir()
    (data / "test-00000-of-00001.parquet").rename(data / "one/a.parquet")
    write(data / "two", "b")
    for path, answer in (("one/a.parquet", "a0"), ("two/*.parquet", "b0")):
        (data / "README.md").write_text(CARD.format(path=path))
        assert benchmark_rows(config, "qa")[0].answers == (answer,)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("name", ["test.jsonl", "test.zip"])
def test_data_of_the_same_size_and_time_are_other_rows(
    from_dataset: dict[str, Any], tmp_path: Path, name: str
) -> None:
    config, file = parse_config(from_dataset), tmp_path / "data" / name
    (tmp_path / "data/test-00000-of-00001.parquet").unlink()
    for answer in "ab":
        rows = [{"key": f"r{n}", "question": f"q{n}?", "answer": answer} for n in range(12)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        if file.suffix == ".zip":
            with ZipFile(file, "w") as packed:
                packed.writestr("test.jsonl", text)
        else:
            file.write_text(text)
        os.utime(file, ns=(10**18, 10**18))
        assert benchmark_rows(config, "qa")[0].answers == (answer,)


@pytest.mark.parametrize("name", ["README.md", ".huggingface.yaml", "dataset_infos.json", "x/a.md"])
def test_every_file_of_a_folder_counts_but_not_of_what_brought_it(
    from_dataset: dict[str, Any], tmp_path: Path, name: str
) -> None:
    def digest() -> str:
        return sources._source_digest(parse_config(from_dataset).benchmarks["qa"].source)

    before = digest()
    for unread in (".git/index", ".cache/huggingface/download/a.metadata"):
        (tmp_path / "data" / unread).parent.mkdir(parents=True)
        (tmp_path / "data" / unread).write_text("x")
    assert digest() == before
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "data/x").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / name).write_text("x")
    assert digest() != before


def test_a_source_without_a_separator_of_answers_is_fetched_under_the_name_it_had(
    from_dataset: dict[str, Any],
) -> None:
    source = parse_config(from_dataset).benchmarks["qa"].source
    of_hub = source.model_copy(update={"dataset": "org/name"})
    parts = [sources._FORM, None, of_hub.model_dump(exclude={"fields": {"answer_separator"}})]
    text = json.dumps(parts, sort_keys=True)
    assert sources._source_digest(of_hub) == hashlib.sha256(text.encode()).hexdigest()[:16]
    fields = source.fields.model_copy(update={"answer_separator": "|"})
    changed = of_hub.model_copy(update={"fields": fields})
    assert sources._source_digest(changed) != sources._source_digest(of_hub)


@pytest.mark.parametrize("path", ["../other/*", "{}/other/*", ".cache/*"])
def test_a_card_that_names_files_elsewhere_is_refused(
    from_dataset: dict[str, Any], tmp_path: Path, path: str
) -> None:
    write(tmp_path / "other", "b")
    (tmp_path / "data/.cache").symlink_to(tmp_path / "other")
    (tmp_path / "data/README.md").write_text(CARD.format(path=path.format(tmp_path)))
    with pytest.raises(UserError, match="which is not among its own files; put it into its folder"):
        sources.fetch(parse_config(from_dataset).benchmarks["qa"].source, tmp_path / "out.jsonl")


def test_a_folder_that_changes_while_it_is_read_is_refused(
    from_dataset: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch_slowly(_: object, path: Path) -> None:
        write(tmp_path / "data", "b")
        path.parent.mkdir(parents=True)
        path.touch()

    monkeypatch.setattr(sources, "_fetch", fetch_slowly)
    with pytest.raises(UserError, match="was changed while it was read; run again"):
        source_file(parse_config(from_dataset), "qa")
    assert not [*(tmp_path / "results/sources").iterdir()]


def test_a_dataset_that_cannot_be_loaded_is_one_sentence(from_dataset: dict[str, Any]) -> None:
    from_dataset["benchmarks"]["qa"]["source"]["split"] = "dev"
    with pytest.raises(UserError) as error:
        Plan.of(from_dataset)
    assert 'Unknown split "dev"' in str(error.value)
    assert "\n" not in str(error.value) and not str(error.value).startswith("error")


def test_a_hub_dataset_out_of_reach_is_one_sentence(from_dataset: dict[str, Any]) -> None:
    source = {"dataset": "org/name", "split": "test", "revision": "0" * 40}
    from_dataset["benchmarks"]["qa"]["source"] = source
    with pytest.raises(
        UnavailableSourceError, match=r"cannot be loaded \(it is not on this.* set HF_HUB_OFFLINE=1"
    ):
        source_file(parse_config(from_dataset), "qa")


def test_a_hub_dataset_without_a_commit_is_never_fetched(from_dataset: dict[str, Any]) -> None:
    from_dataset["benchmarks"]["qa"]["source"] = {"dataset": "org/name", "split": "test"}
    with pytest.raises(UnavailableSourceError, match=r"'org/name' has no revision; pin it with"):
        source_file(parse_config(from_dataset), "qa")


def test_what_is_missing_is_planned_as_if_it_were_new(from_dataset: dict[str, Any]) -> None:
    from_dataset["benchmarks"]["qa"]["source"] = {"dataset": "org/name", "split": "test"}
    plan = Plan.of(from_dataset)
    assert "has no revision" in plan.missing["qa"]
    assert plan.prepared("qa").rows == ()
    assert plan.digest("qa", "both", 0) == plan.digest("qa", "both", 1)


def test_a_revision_is_for_the_hub_alone(from_dataset: dict[str, Any]) -> None:
    from_dataset["benchmarks"]["qa"]["source"]["revision"] = "0" * 40
    with pytest.raises(UserError, match=r"is for hub datasets, but .* is a folder; remove it"):
        parse_config(from_dataset)


def test_ids_limit_and_sample_choose_rows(values: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("r9\nr1\n")
    chosen = {}
    for key, value in (("ids", ["r3", "r2"]), ("ids_file", str(tmp_path / "ids.txt")),
                       ("sample", {"size": 5}), ("limit", 4)):  # fmt: skip
        task = {**values["benchmarks"]["qa"], key: value}
        config = parse_config({**values, "benchmarks": {"qa": task}})
        chosen[key] = [row.id for row in benchmark_rows(config, "qa")]
    assert chosen["ids"] == ["r2", "r3"] and chosen["ids_file"] == ["r1", "r9"]
    assert len(chosen["sample"]) == 5 and chosen["limit"] == ["r0", "r1", "r2", "r3"]
    values["benchmarks"]["qa"].update(ids=["r1"], limit=3)
    with pytest.raises(UserError, match="ids and limit choose rows in two ways; give one"):
        parse_config(values)


def test_planning_6000_rows_is_fast_and_loads_no_heavy_library(
    values: dict[str, Any], tmp_path: Path
) -> None:
    rows = [f'{{"question": "question {n}", "answer": ["a", "b"]}}\n' for n in range(6000)]
    (tmp_path / "shots.txt").write_text("Question: question 7\nAnswer: x\n")
    values["benchmarks"]["qa"]["shots"] = {"file": str(tmp_path / "shots.txt")}
    seconds = {}
    for count in (600, 6000):
        (tmp_path / "qa.jsonl").write_text("".join(rows[:count]))
        times = []
        for _ in range(3):
            started = time.process_time()
            plan = Plan.of(values)
            plan.digests("qa", "both")
            times.append(time.process_time() - started)
        seconds[count] = min(times)
    assert seconds[6000] < 20 * seconds[600]
    assert [n for n, row in enumerate(plan.prepared("qa").rows) if row.shot] == [7]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values))
    code = (
        "import sys, yaml; from adafuse.workflow.plan import Plan;"
        f" Plan.of(yaml.safe_load(open({str(tmp_path / 'config.yaml')!r})));"
        " assert not {'torch', 'datasets', 'polars'} & sys.modules.keys()"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


def test_rows_that_are_all_few_shot_examples_are_refused_while_planning(
    values: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "qa.jsonl").write_text('{"question": "q", "answer": "x"}\n')
    (tmp_path / "shots.txt").write_text("Question: q\nAnswer: x\n")
    values["benchmarks"]["qa"]["shots"] = {"file": str(tmp_path / "shots.txt")}
    values["benchmarks"]["qa"]["shards"] = 1
    told = "benchmarks.qa: every row is a few-shot example of the prompt, so none is left to score"
    with pytest.raises(UserError, match=told):
        Plan.of(values).prepared("qa")
    values["benchmarks"]["qa"]["exclude_shots"] = False
    assert not Plan.of(values).prepared("qa").rows[0].shot


def test_a_second_slot_of_a_prompt_is_told_while_planning(values: dict[str, Any]) -> None:
    values["benchmarks"]["qa"]["prompt"] = "{context} {question}"
    (told,) = Plan.of(values).warnings
    assert told == "benchmarks.qa.prompt: {context} stays as it is; only {question} is filled in"


def test_a_slot_in_two_pairs_of_braces_is_told_while_planning(values: dict[str, Any]) -> None:
    values["benchmarks"]["qa"]["prompt"] = "Question: {{question}}"
    (told,) = Plan.of(values).warnings
    assert told.endswith("the outer braces of {{question}} stay in each prompt; write {question}")


def test_a_backslash_and_an_n_where_a_line_break_was_meant_are_told_while_planning(
    values: dict[str, Any],
) -> None:
    task = values["benchmarks"]["qa"]
    task |= {
        "prompt": r"Q: {question}\nA:",
        "stop": [r"\n", "\n", {"string": r"\n\n", "after": "x"}, {"string": ".", "after": r"\n"}],
    }
    task["source"]["fields"] = {"question": r"{question}\n{answer}"}
    told = Plan.of(values).warnings
    assert [each.split(" has ")[0] for each in told] == [
        "benchmarks.qa.prompt", "benchmarks.qa.source.fields.question", *["benchmarks.qa.stop"] * 3
    ]  # fmt: skip
    assert told[0].endswith(r"\n as two characters, not as a line break; write it in double quotes")


def test_several_answers_in_one_text_are_told_while_planning(values: dict[str, Any]) -> None:
    source = values["benchmarks"]["qa"]["source"]
    rows = [json.loads(line) for line in Path(source["file"]).read_text().splitlines()]
    rows[3]["answer"] = "one|two"
    Path(source["file"]).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (told,) = Plan.of(values).warnings
    assert told.startswith("benchmarks.qa: 1 of ")
    assert told.endswith("set answer_separator in its fields to '|'")
    source["fields"] = {"answer_separator": "|"}
    assert Plan.of(values).warnings == []


def test_rows_that_can_never_be_right_are_told_while_planning(values: dict[str, Any]) -> None:
    file = Path(values["benchmarks"]["qa"]["source"]["file"])
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert Plan.of(values).warnings == []
    rows[3]["answer"] = ["---", "The"]
    rows[4]["answer"] = ["---", "dashes"]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (told,) = Plan.of(values).warnings
    assert told.startswith("benchmarks.qa: 1 of 12 rows can never be right") and "'r3'" in told
    file.write_text("".join(json.dumps({**row, "answer": "..."}) + "\n" for row in rows))
    with pytest.raises(UserError, match="12 of 12 rows can never be right"):
        Plan.of(values)


def test_rows_that_are_copies_are_told_while_planning(values: dict[str, Any]) -> None:
    file = Path(values["benchmarks"]["qa"]["source"]["file"])
    other = [json.dumps({"id": f"r{n}", "question": "q1?", "answer": f"{n}"}) for n in range(90)]
    file.write_text("\n".join([text := file.read_text(), *other]))
    assert Plan.of(values).warnings == [], "other answers"
    file.write_text(text + text)
    (told,) = Plan.of(values).warnings
    assert told.startswith("benchmarks.qa: 12 of 24 rows are copies of earlier ones, but intervals")
    assert Plan.of({**values, "main": {"benchmarks": []}}).warnings == []
