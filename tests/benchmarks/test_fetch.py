"""Datasets in the hub's layout, made here; the hub itself is out of reach of the tests."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adafuse.benchmarks.rows import Fields, Row, read_rows
from adafuse.config.benchmarks import SourceConfig
from adafuse.errors import UserError
from adafuse.workflow.benchmarks import fetch


def dataset(folder: Path, split: str, **configs: list[dict[str, Any]]) -> str:
    """Write a dataset card and a Parquet file per configuration."""
    card = "---\nconfigs:\n"
    for config, records in configs.items():
        (folder / config).mkdir(parents=True)
        file = f"{config}/{split}-00000-of-00001.parquet"
        pq.write_table(pa.Table.from_pylist(records), folder / file)
        card += f"- config_name: {config}\n  data_files:\n  - split: {split}\n"
        card += f"    path: {config}/{split}-*\n"
    (folder / "README.md").write_text(f"{card}---\n# A data set\n")
    return str(folder)


def of(place: str, split: str, **more: Any) -> SourceConfig:
    """The configuration of a split."""
    return SourceConfig(dataset=place, split=split, **more)


def fetched(source: SourceConfig, tmp_path: Path) -> tuple[Row, ...]:
    fetch(source, tmp_path / "out" / "source.jsonl")
    return read_rows(tmp_path / "out" / "source.jsonl")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


def test_lists_of_answers_and_hashed_ids_as_in_nq_open(tmp_path: Path) -> None:
    answers = ["14\u00a0December", "zero\u200bwidth"]
    records = [{"question": "when was it", "answer": answers}]
    source = of(dataset(tmp_path / "nq", "validation", default=records), "validation")
    (row,) = fetched(source, tmp_path)
    assert row.answers == tuple(answers)
    assert len(row.id) == 16


def test_nested_answers_as_in_triviaqa(tmp_path: Path) -> None:
    answer = {"aliases": ["Ada", "A. L."], "value": "Ada"}
    records = [{"question": "who?", "question_id": "tc_1", "answer": answer}]
    place = dataset(tmp_path / "tqa", "validation", rc=records)
    fields = Fields(answer="answer.aliases", id="question_id")
    source = of(place, "validation", fields=fields, config="rc")
    assert fetched(source, tmp_path) == (Row("tc_1", "who?", ("Ada", "A. L.")),)


def test_a_templated_question_as_in_squad(tmp_path: Path) -> None:
    answers = {"text": ["Ada", "Ada"], "answer_start": [0, 0]}
    records = [{"id": "s1", "context": "Ada {dug} it.", "question": "Who?", "answers": answers}]
    place = dataset(tmp_path / "squad", "validation", plain_text=records)
    fields = Fields(question="{context}\n{question}", answer="answers.text", id="id")
    source = of(place, "validation", fields=fields, config="plain_text")
    assert fetched(source, tmp_path) == (Row("s1", "Ada {dug} it.\nWho?", ("Ada", "Ada")),)


def test_a_final_number_as_in_gsm8k(tmp_path: Path) -> None:
    answer = "She has 2*600 = <<2*600=1200>>1200 eggs.\n#### 1,200"
    place = dataset(tmp_path / "gsm", "test", main=[{"question": "eggs?", "answer": answer}])
    source = of(place, "test", fields=Fields(final_after="####"), config="main")
    (row,) = fetched(source, tmp_path)
    assert row.answers == ("She has 2*600 = 1200 eggs.\nTherefore, the answer is 1,200",)


def flores(tmp_path: Path, german: list[dict[str, Any]]) -> SourceConfig:
    english = [{"id": 1, "sentence": "Good day."}, {"id": 2, "sentence": "Thank you."}]
    place = dataset(tmp_path / "flores", "devtest", eng_Latn=english, deu_Latn=german)
    fields = Fields(question="sentence", answer="sentence", id="id")
    return of(place, "devtest", fields=fields, config="eng_Latn", answer_config="deu_Latn")


def test_two_languages_are_joined_by_id_as_in_flores(tmp_path: Path) -> None:
    german = [{"id": 2, "sentence": "Danke."}, {"id": 1, "sentence": "Guten Tag."}]
    assert fetched(flores(tmp_path, german), tmp_path) == (
        Row("1", "Good day.", ("Guten Tag.",)),
        Row("2", "Thank you.", ("Danke.",)),
    )


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [([1], "row 1 (counted from 0): configuration 'deu_Latn' has no row '2'"),
     ([1, 1], "row 1 (counted from 0): id '1' occurs twice")],
)  # fmt: skip
def test_languages_that_do_not_fit_are_one_sentence(
    tmp_path: Path, ids: list[int], sentence: str
) -> None:
    german = [{"id": number, "sentence": "Danke."} for number in ids]
    with pytest.raises(UserError) as error:
        fetched(flores(tmp_path, german), tmp_path)
    assert sentence in str(error.value)


def test_a_bad_row_is_named_by_its_number_and_nothing_is_written(tmp_path: Path) -> None:
    records = [{"question": "a", "answer": "x"}, {"question": "b", "answer": ""}]
    place = dataset(tmp_path / "d", "test", default=records)
    with pytest.raises(UserError, match=r"row 1 \(counted from 0\): answer is empty"):
        fetched(of(place, "test"), tmp_path)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("config", "split", "reason"),
    [("none", "test", "'none' not found"), ("main", "dev", 'Unknown split "dev"')],
)
def test_a_configuration_or_split_that_is_not_there_is_one_sentence(
    tmp_path: Path, config: str, split: str, reason: str
) -> None:
    place = dataset(tmp_path / "d", "test", main=[{"question": "a", "answer": "x"}])
    with pytest.raises(UserError) as error:
        fetched(of(place, split, config=config), tmp_path)
    assert reason in str(error.value) and "check its config, its split" in str(error.value)
    assert "\n" not in str(error.value)


def plain(folder: Path, **files: str) -> str:
    """Write a folder without a card; a name says where the file is and what it is."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


def test_texts_of_json_and_csv_stay_as_they_are_written(tmp_path: Path) -> None:
    written = ["007", "1.50", "1e5", "1999-12-31", "NA", "12345678901234567890"]
    lines = [
        json.dumps({"id": f"0{n}", "question": f"{n}?", "answer": a}) for n, a in enumerate(written)
    ]
    number = json.dumps({"id": 9, "question": "9?", "answer": 12345678901234567890})
    place = plain(tmp_path / "json", train_jsonl="\n".join([*lines, number]))
    rows = fetched(of(place, "train"), tmp_path)
    assert [row.answers[0] for row in rows] == [*written, "12345678901234567890"]
    assert [row.id for row in rows] == [*(f"0{n}" for n in range(6)), "9"]
    table = "id,question,answer\n" + "".join(f"0{n},{n}?,{a}\n" for n, a in enumerate(written))
    rows = fetched(of(plain(tmp_path / "csv", train_csv=table), "train"), tmp_path)
    assert [row.answers[0] for row in rows] == written
    part = fetched(of(str(tmp_path / "csv"), "train[:2]"), tmp_path)
    assert part == rows[:2]


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (
            {"train_csv": "id,question,answer\n1,Who, me?,Bob\n"},
            "has 4 fields, but the header has 3",
        ),
        ({"train_csv": "question,answer,answer\na,b,c\n"}, "column 'answer' occurs twice"),
        (
            {
                "train__a_jsonl": '{"question": "a", "answer": "b"}\n',
                "train__b_csv": "question,answer\nc,d\n",
                "train__c_csv": "question,answer\ne,f\n",
            },
            "'train/a.jsonl' would be left out",
        ),
    ],
)
def test_a_field_too_many_and_files_of_two_formats_are_refused(
    tmp_path: Path, files: dict[str, str], sentence: str
) -> None:
    with pytest.raises(UserError) as error:
        fetched(of(plain(tmp_path / "d", **files), "train"), tmp_path)
    assert sentence in str(error.value)


@pytest.mark.parametrize("split", ["train[:2]", "train+test"])
def test_a_field_too_many_shifts_no_column_of_a_part_of_a_split(tmp_path: Path, split: str) -> None:
    good, odd = ("id,question,answer\n" + "".join(rows) for rows in (["1,a,b\n"], ["1,a,b,c\n"]))
    for name, files in {"one": (odd, good), "two": (good, odd)}.items():
        place = plain(tmp_path / name, train_csv=files[0], test_csv=files[1])
        if (name, split) != ("two", "train[:2]"):
            with pytest.raises(UserError, match="more fields than its header; quote them"):
                fetched(of(place, split), tmp_path)


def test_a_column_of_texts_and_numbers_that_only_datasets_can_read_is_refused(
    tmp_path: Path,
) -> None:
    lines = '{"question": "a", "answer": "07"}\n{"question": "b", "answer": 8}\n'
    place = plain(tmp_path / "d", train_jsonl=lines)
    with pytest.raises(UserError, match=r"column 'answer' has texts and other values.*as `file`"):
        fetched(of(place, "train[:2]"), tmp_path)


def test_classes_have_their_names_and_narrow_numbers_their_digits(tmp_path: Path) -> None:
    import datasets

    (tmp_path / "d").mkdir()
    kinds = {
        "question": datasets.Value("string"),
        "answer": datasets.ClassLabel(names=["no", "yes"]),
        "more": datasets.List({"x": datasets.Value("float32")}),
    }
    columns = {"question": ["a", "b"], "answer": [1, 0], "more": [[{"x": 0.1}], [{"x": 7}]]}
    table = datasets.Dataset.from_dict(columns, datasets.Features(kinds))
    table.to_parquet(tmp_path / "d" / "train.parquet")
    rows = fetched(of(str(tmp_path / "d"), "train"), tmp_path)
    assert [row.answers for row in rows] == [("yes",), ("no",)]
    rows = fetched(of(str(tmp_path / "d"), "train", fields=Fields(answer="more.x")), tmp_path)
    assert [row.answers for row in rows] == [("0.1",), ("7",)]


def test_a_dataset_out_of_reach_is_one_sentence_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        fetched(of("org/name", "test", revision="0" * 40), tmp_path)
    said = str(error.value)
    assert "'org/name' (split test, revision 000" in said
    assert "cannot be loaded" in said and "\n" not in said
    for advice in ("network", "HF_HUB_OFFLINE=1", "local `file`"):
        assert advice in said


def test_what_is_written_are_rows_of_the_published_form(tmp_path: Path) -> None:
    place = dataset(tmp_path / "d", "test", main=[{"question": "\u00e4", "answer": "x"}])
    fetch(of(place, "test"), tmp_path / "rows.jsonl")
    written = json.loads((tmp_path / "rows.jsonl").read_text())
    assert written.keys() == {"id", "question", "answer"}


def test_cells_of_csv_stay_text(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    lines = "id,question,answer\r\n007,q,NA\r\n08,q2, 1e3 \r\n9,q3,7\r\n"
    (tmp_path / "d/test.csv").write_bytes(b"\xef\xbb\xbf" + lines.encode())
    assert fetched(of(str(tmp_path / "d"), "test"), tmp_path) == (
        Row("007", "q", ("NA",)),
        Row("08", "q2", (" 1e3 ",)),
        Row("9", "q3", ("7",)),
    )
