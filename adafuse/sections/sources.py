"""Where the rows of a benchmark come from: `source` of a benchmark."""

from typing import Annotated

from adafuse.sections.section import Section, Text
from adafuse.told import told


class FieldsConfig(Section):
    """Where a record of the source holds what; see `adafuse.benchmarks.fields.Fields`."""

    question: Annotated[
        Text,
        told(
            'path of the question, or a frame for it (`"{context}\\n{question}"`)',
            "the records call it otherwise",
        ),
    ] = "question"
    answer: Annotated[
        Text,
        told("path of the answer or answers (`answer.aliases`)", "the records call it otherwise"),
    ] = "answer"
    id: Annotated[
        Text | None,
        told("path of the id; without it a row's `id`, if it has one", "the records have ids"),
    ] = None
    final_after: Annotated[
        Text | None,
        told(
            "the mark before the final answer",
            "answers end in a mark and the final answer (`####` in GSM8K)",
        ),
    ] = None


class SourceConfig(Section):
    """Where the rows of a benchmark come from: a file, or a split of a dataset."""

    file: Annotated[
        Text | None,
        told(
            'JSON lines, a JSON list, or Parquet; rows `{"question", "answer", optional "id"}`',
            "you have the rows as a file",
        ),
    ] = None
    dataset: Annotated[
        Text | None,
        told(
            "instead of `file`: a hub dataset `org/name`, or a folder in the hub's layout",
            "the rows are on the hub",
        ),
    ] = None
    config: Annotated[
        Text | None,
        told("which configuration of the dataset", "the dataset has several"),
    ] = None
    answer_config: Annotated[
        Text | None,
        told(
            "a second configuration that holds the answers, joined by id",
            "questions and answers are apart (FLORES: the other language)",
        ),
    ] = None
    split: Annotated[
        Text | None,
        told("which split of the dataset", "you want other rows"),
    ] = None
    revision: Annotated[
        Text | None,
        told(
            "commit of a hub dataset, 40 hexadecimal digits; required for those of the hub",
            "you want the rows of another day",
        ),
    ] = None
    fields: Annotated[
        FieldsConfig,
        told(
            "where a record holds its `question`, `answer` and `id`",
            "the records have other names than rows",
        ),
    ] = FieldsConfig()
