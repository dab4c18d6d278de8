"""The section `benchmarks`: where rows come from, how they are asked and scored."""

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from adafuse.benchmarks.description import PaperFigures
from adafuse.benchmarks.prompts import SLOT, Style
from adafuse.benchmarks.rows import Fields
from adafuse.errors import known
from adafuse.metrics.registry import SCORERS
from adafuse.options import BatchSize, Flag, Identifier, Number, Positive, Section, Text, doc

PIN = (
    "pin it with source: {revision: COMMIT}, 40 hexadecimal digits from the history of its files on"
    " the hub"
)


class SourceConfig(Section):
    """Where the rows of a benchmark come from: a file, or a split of a dataset."""

    file: Text | None = doc(
        'JSON lines, a JSON list, or Parquet; rows `{"question", "answer", optional "id"}`',
        "you have the rows as a file",
        None,
    )
    dataset: Text | None = doc(
        "a hub dataset `org/name`, or a folder in its layout", "the rows are on the hub", None
    )
    config: Text | None = doc("its configuration", "it has several", None)
    answer_config: Text | None = doc(
        "a second configuration, with the answers, joined by id",
        "questions and answers are apart (FLORES: the other language)",
        None,
    )
    split: Text | None = doc("its split", "you want other rows", None)
    revision: Text | None = doc(
        "commit of a hub dataset, 40 hexadecimal digits; required there",
        "you want the rows of another day",
        None,
    )
    fields: Fields = doc(
        "where a record holds what", "records have other names than rows", Fields()
    )

    @model_validator(mode="after")
    def _one_whole_source(self) -> Self:
        if (self.file is None) == (self.dataset is None):
            raise ValueError("give a `file` or a `dataset`, one of them")
        if self.file is not None:
            for key in ("config", "answer_config", "split", "revision"):
                if getattr(self, key) is not None:
                    raise ValueError(f"{key} is for a dataset, not for a file; remove it")
        elif self.split is None:
            raise ValueError(f"dataset {self.dataset!r} has no split; add it: split: test")
        elif self.answer_config is not None and self.fields.id is None:
            raise ValueError("answer_config joins rows by id; name fields.id")
        return self


class ShotsConfig(Section):
    """A file with an instruction and few-shot examples, of which the first `count` are used."""

    file: Text = doc("an instruction and few-shot examples")
    count: Number | None = doc(
        "how many, from the first; all without it", "prompts are too long", None
    )


class SampleConfig(Section):
    """A part of the rows that a seed decides."""

    size: Positive = doc("how many rows")
    seed: Number = doc("which rows", "you want others", 0)


class BenchmarkConfig(Section):
    """A task: its rows, the text around each question, when an answer ends, how it is scored."""

    source: SourceConfig = doc("where the rows come from")
    prompt: Text = doc("the text around the question, with `{question}` once")
    shots: ShotsConfig | None = doc(
        "an instruction and few-shot examples", "the task needs them", None
    )
    frame: Style = doc(
        "`strict`: examples laid out as the question; `published`: the file's text as it is and a"
        " blank line",
        "you compare with the paper's numbers",
        "strict",
    )
    exclude_shots: Flag = doc(
        "mark rows that are few-shot examples of the prompt; a strict score leaves them out",
        "never, but to see what it changes",
        True,
    )
    stop: tuple[Text, ...] = doc(
        "strings before which an answer is cut", "answers go on with a question of their own", ()
    )
    max_new_tokens: Positive = doc(
        "ends an answer when some model holds that many generated tokens",
        "answers are cut short (stop reason `length`)",
    )
    scorer: Text = doc("how texts are scored: one of the [scorers](#scorers)")
    limit: Positive | None = doc("only the first rows", "trying things out", None)
    sample: SampleConfig | None = doc(
        "`size` rows that `seed` chooses, in file order; after `limit`",
        "a smaller run is to stand for the whole",
        None,
    )
    ids: Annotated[tuple[Identifier, ...], Field(min_length=1)] | None = doc(
        "only the rows of those ids", "some rows are of interest", None
    )
    ids_file: Text | None = doc("the same from a file with one id a line", "the list is long", None)
    shards: Positive = doc(
        "decode jobs per run",
        "a job takes much less or more than 10 to 30 minutes; each loads the models",
        1,
    )
    development: Text | None = doc(
        "the benchmark whose scores choose between models for this one",
        "a run of method `development_pair` has this benchmark",
        None,
    )
    batch_size: BatchSize | None = doc(
        "instead of that of `decode`", "one benchmark has longer prompts, or runs are timed", None
    )
    timed: Flag = doc(
        "decode with nothing beside it on the machine", "seconds are to be compared", False
    )
    paper: PaperFigures = doc(
        "what the paper says of it, beside our figures", "that is known", PaperFigures()
    )
    use: Text | None = doc(
        "file with the benchmark's other fields",
        "several configurations share a benchmark",
        None,
        exclude=True,
    )

    @field_validator("prompt")
    @classmethod
    def _asks_once(cls, prompt: str) -> str:
        if prompt.count(SLOT) != 1:
            raise ValueError(f"must hold {SLOT} exactly once")
        return prompt

    @field_validator("scorer")
    @classmethod
    def _is_known(cls, scorer: str) -> str:
        if scorer not in SCORERS:
            raise ValueError(known("scorer", scorer, list(SCORERS)))
        return scorer

    @model_validator(mode="after")
    def _rows_are_chosen_in_one_way(self) -> Self:
        ways = ("ids", "ids_file", "limit", "sample")
        given = [key for key in ways if getattr(self, key) is not None]
        if len(given) > 1 and given[0].startswith("ids"):
            both = " and ".join(given[:2])
            raise ValueError(f"{both} choose rows in two ways; give one of them")
        return self
