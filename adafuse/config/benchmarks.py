"""The section `benchmarks`: where rows come from, how they are asked and scored."""

from typing import Annotated, Literal

from pydantic import Field

from adafuse.config.fields import Count, Figure, Flag, Identifier, Number, Section, Text
from adafuse.decoding.options import BatchSize, told


class FieldsConfig(Section):
    """Where a record of the source holds what; see `adafuse.benchmarks.rows.Fields`."""

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


class ShotsConfig(Section):
    """A file with an instruction and worked examples, of which the first `count` are used."""

    file: Annotated[Text, told("an instruction and worked examples")]
    count: Annotated[
        Number | None,
        told("how many of the examples, from the first; all without it", "prompts are too long"),
    ] = None


class SampleConfig(Section):
    """A part of the rows that a seed decides."""

    size: Annotated[Count, told("how many rows")]
    seed: Annotated[Number, told("which rows", "you want others")] = 0


class PaperConfig(Section):
    """What the paper's appendix C says of the benchmark, to be shown beside our figures."""

    rows: Annotated[Count | None, told("how many rows the paper has")] = None
    question_chars: Annotated[Figure | None, told("mean characters of a question there")] = None
    answer_chars: Annotated[Figure | None, told("mean characters of an answer there")] = None


class BenchmarkConfig(Section):
    """A task: its rows, the text around each question, when an answer ends, how it is scored.

    `development` names the benchmark whose scores choose between models for this one. A `timed`
    benchmark is decoded with nothing else running on the machine; `batch_size` goes before that of
    `decode`.
    """

    source: Annotated[SourceConfig, told("where the rows come from")]
    prompt: Annotated[Text, told("the text around the question, with `{question}` once")]
    shots: Annotated[
        ShotsConfig | None,
        told("an instruction and worked examples", "the task needs examples"),
    ] = None
    frame: Annotated[
        Literal["strict", "published"],
        told(
            "`strict`: examples laid out as the question; `published`: the text of the file as it"
            " is and a blank line",
            "you compare with the paper's numbers",
        ),
    ] = "strict"
    exclude_shots: Annotated[
        Flag,
        told(
            "mark rows that are worked examples of the prompt, so that a strict score leaves them"
            " out",
            "never, but to see what it changes",
        ),
    ] = True
    stop: Annotated[
        tuple[Text, ...],
        told(
            "strings that end an answer; it is cut before them",
            "answers go on with a question of their own",
        ),
    ] = ()
    max_new_tokens: Annotated[
        Count,
        told(
            "ends an answer when some model holds that many generated tokens",
            "answers are cut short (stop reason `length`)",
        ),
    ]
    scorer: Annotated[Text, told("how texts are scored: one of the [scorers](#scorers)")]
    limit: Annotated[Count | None, told("only the first rows", "trying things out")] = None
    sample: Annotated[
        SampleConfig | None,
        told(
            "`size` rows that `seed` chooses, in file order; after `limit`",
            "a smaller run is to stand for the whole",
        ),
    ] = None
    ids: Annotated[
        Annotated[tuple[Identifier, ...], Field(min_length=1)] | None,
        told("only the rows of those ids", "some rows are of interest"),
    ] = None
    ids_file: Annotated[
        Text | None,
        told("the same from a file with one id a line", "the list is long"),
    ] = None
    shards: Annotated[
        Count,
        told(
            "decode jobs per run",
            "jobs are far from 10 to 30 minutes, which are good: loading large models costs more"
            " than many rows",
        ),
    ] = 1
    development: Annotated[
        Text | None,
        told(
            "the benchmark whose scores choose between models for this one",
            "a run of method `development_pair` has this benchmark",
        ),
    ] = None
    batch_size: Annotated[
        BatchSize | None,
        told("instead of that of `decode`", "one benchmark has longer prompts, or runs are timed"),
    ] = None
    timed: Annotated[
        Flag,
        told(
            "decode with nothing beside it on the machine",
            "the seconds of the trace are to be compared",
        ),
    ] = False
    paper: Annotated[
        PaperConfig,
        told(
            "what the paper says of the benchmark, shown beside our figures",
            "the paper's figures are known",
        ),
    ] = PaperConfig()
