"""Benchmarks in files of their own."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from adafuse.config.reading import parse_config, read_config, to_json, with_used_files
from adafuse.decoding.words import StopAfter
from adafuse.errors import UserError

ROOT = Path(__file__).parents[2]
COMMIT = "0" * 40
HUB = {
    "source": {"dataset": "org/name", "config": "main", "split": "test", "revision": COMMIT,
               "fields": {"answer": "answer.text"}},
    "prompt": "Question: {question}\nAnswer:",
    "shots": {"file": "shots/x.txt", "count": 5},
    "max_new_tokens": 8,
    "scorer": "squad",
}  # fmt: skip


def joined(folder: Path, own: dict[str, Any], task: dict[str, Any] = HUB) -> dict[str, Any]:
    (folder / "task.yaml").write_text(yaml.safe_dump(task))
    values = {"benchmarks": {"qa": {"use": str(folder / "task.yaml"), **own}}}
    return with_used_files(values)["benchmarks"]["qa"]


def test_what_stands_beside_use_goes_before_the_file(tmp_path: Path) -> None:
    found = joined(tmp_path, {"max_new_tokens": 4, "shots": {"count": 2}, "limit": 3})
    assert found["max_new_tokens"] == 4 and found["limit"] == 3
    assert found["shots"] == {"file": str(tmp_path / "shots/x.txt"), "count": 2}
    assert found["source"] == HUB["source"]
    assert "use" not in found


def test_a_file_that_a_later_configuration_takes_back_replaces_nothing(tmp_path: Path) -> None:
    assert joined(tmp_path, {"source": {"file": None}})["source"] == {**HUB["source"], "file": None}


def test_a_file_as_source_replaces_the_dataset_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    assert joined(tmp_path, {"source": {"file": "x.jsonl"}})["source"] == {"file": "x.jsonl"}


def test_another_file_as_source_has_the_fields_of_the_first(tmp_path: Path) -> None:
    fields = {"question": "{context}\n{question}"}
    task = {**HUB, "source": {"file": "test.jsonl", "fields": fields}}
    found = joined(tmp_path, {"source": {"file": "development.jsonl"}}, task)
    assert found["source"] == {"file": "development.jsonl", "fields": fields}


def test_a_copy_of_the_dataset_keeps_its_split_and_fields(tmp_path: Path) -> None:
    source = joined(tmp_path, {"source": {"dataset": "./copy"}})["source"]
    kept = {key: value for key, value in HUB["source"].items() if key != "revision"}
    assert source == {**kept, "dataset": "./copy"}


def test_a_revision_beside_use_pins_the_dataset(tmp_path: Path) -> None:
    source = joined(tmp_path, {"source": {"revision": "1" * 40}})["source"]
    assert source == {**HUB["source"], "revision": "1" * 40}


def test_paths_in_the_file_are_relative_to_it(tmp_path: Path) -> None:
    task = {**HUB, "source": {"file": "../rows.jsonl"}, "ids_file": "ids.txt"}
    found = joined(tmp_path, {}, task)
    assert found["source"]["file"] == str(tmp_path.parent / "rows.jsonl")
    assert found["ids_file"] == str(tmp_path / "ids.txt")
    task["source"] = {"dataset": "./copy", "file": None}
    assert joined(tmp_path, {}, task)["source"]["dataset"] == str(tmp_path / "copy")
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert joined(tmp_path, {})["source"]["dataset"] == str(tmp_path / "org" / "name")


def test_the_stored_configuration_holds_the_merged_values(
    values: dict[str, Any], tmp_path: Path
) -> None:
    plain = parse_config(copy.deepcopy(values))
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(values["benchmarks"]["qa"]))
    values["benchmarks"]["qa"] = {"use": str(tmp_path / "task.yaml")}
    config = parse_config(values)
    assert config == plain
    (tmp_path / "config.json").write_text(to_json(config))
    assert read_config(tmp_path / "config.json") == plain
    assert '"use"' not in to_json(config)


@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        ({"metrik": "x"}, "{file}: unknown key 'metrik'; known are: source, prompt"),
        ({"source": {"url": "x"}}, "{file}: source: unknown key 'url'; known are: file, dataset"),
        ({"max_new_tokens": 0}, "{file}: max_new_tokens must be greater than or equal to 1, not 0"),
        ({"use": "x"}, "{file}: it cannot `use` another file; write the fields into it"),
        ({"source": 3}, "{file}: source "),
    ],
)
def test_what_is_wrong_in_the_file_is_one_sentence_that_names_it(
    tmp_path: Path, task: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError) as error:
        joined(tmp_path, {}, task)
    assert sentence.format(file=tmp_path / "task.yaml") in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", [None, "", "[1]", "a: [", "'"])
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "task.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UserError, match=r"benchmarks\.qa: file .*task\.yaml'") as error:
        with_used_files({"benchmarks": {"qa": {"use": str(file)}}})
    assert "\n" not in str(error.value)


def test_what_is_wrong_beside_use_is_one_sentence(values: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(values["benchmarks"]["qa"]))
    values["benchmarks"]["qa"] = {"use": str(tmp_path / "task.yaml"), "limmit": 3}
    with pytest.raises(
        UserError, match=r"benchmarks\.qa: unknown key 'limmit'; .*, use; did you mean 'limit'\?$"
    ):
        parse_config(values)
    values["benchmarks"]["qa"] = {"use": 3}
    with pytest.raises(UserError, match=r"benchmarks\.qa\.use must be the path of a file, not 3"):
        parse_config(values)


TEMPLATE = "Question: {question}\nAnswer:"
TABLE = {
    "natural_questions": (TEMPLATE, ("\n",), 32, 5),
    "triviaqa": (TEMPLATE, ("\n",), 32, 5),
    "squad": (TEMPLATE, ("\n",), 32, 5),
    "gsm8k": (
        "Question: {question}\nLet's think step by step\n",
        ("Question:", StopAfter(string="\n\n", after="answer is")),
        512,
        4,
    ),
    "flores_en_de": (TEMPLATE, ("\n",), 256, None),
    "flores_de_en": (TEMPLATE, ("\n",), 256, None),
}


@pytest.mark.parametrize("name", TABLE)
def test_the_six_benchmarks_are_what_the_specification_says(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(ROOT)
    used = {"use": f"config/benchmarks/{name}.yaml"}
    task = parse_config({**values, "benchmarks": {name: used}}).benchmarks[name]
    count = task.shots.count if task.shots else None
    assert (task.prompt, task.stop, task.max_new_tokens, count) == TABLE[name]
    assert task.prompt_layout == "strict" and task.exclude_shots


def test_the_published_files_of_the_smoke_test_take_the_place_of_the_datasets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    config = read_config(ROOT / "config/smoke.yaml")
    assert list(config.benchmarks) == list(TABLE)
    for task in config.benchmarks.values():
        assert task.source.file and task.source.dataset is None and task.limit == 20
    assert config.benchmarks["gsm8k"].max_new_tokens == 128
