"""The section `benchmarks`: where rows come from, how they are asked and scored."""

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from adafuse.benchmarks.description import PaperFigures
from adafuse.benchmarks.prompts import SLOT, Style
from adafuse.benchmarks.rows import Fields
from adafuse.errors import known
from adafuse.metrics.registry import SCORERS
from adafuse.options import BatchSize, Flag, Identifier, Number, Positive, Section, Text

PIN = (
    "pin it with source: {revision: COMMIT}, 40 hexadecimal digits from the history of its files on"
    " the hub"
)


class SourceConfig(Section):
    """Where the rows of a benchmark come from: a file, or a split of a dataset."""

    file: Text | None = None
    """JSON lines, a JSON list, or Parquet; rows `{"question", "answer", optional "id"}`; change it
    when you have the rows as a file"""
    dataset: Text | None = None
    """a hub dataset `org/name`, or a folder in its layout; change it when the rows are on the hub
    """
    config: Text | None = None
    """its configuration; change it when it has several"""
    answer_config: Text | None = None
    """a second configuration, with the answers, joined by id; change it when questions and answers
    are apart (FLORES: the other language)"""
    split: Text | None = None
    """its split; change it when you want other rows"""
    revision: Text | None = None
    """commit of a hub dataset, 40 hexadecimal digits; required there; change it when you want the
    rows of another day"""
    fields: Fields = Fields()
    """where a record holds what; change it when records have other names than rows"""

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

    file: Text
    """an instruction and few-shot examples"""
    count: Number | None = None
    """how many, from the first; all without it; change it when prompts are too long"""


class SampleConfig(Section):
    """A part of the rows that a seed decides."""

    size: Positive
    """how many rows"""
    seed: Number = 0
    """which rows; change it when you want others"""


class BenchmarkConfig(Section):
    """A task: its rows, the text around each question, when an answer ends, how it is scored."""

    source: SourceConfig
    """where the rows come from"""
    prompt: Text
    """the text around the question, with `{question}` once"""
    shots: ShotsConfig | None = None
    """an instruction and few-shot examples; change it when the task needs them"""
    frame: Style = "strict"
    """`strict`: examples laid out as the question; `published`: the file's text as it is and a
    blank line; change it when you compare with the paper's numbers"""
    exclude_shots: Flag = True
    """mark rows that are few-shot examples of the prompt; a strict score leaves them out; change it
    when never, but to see what it changes"""
    stop: tuple[Text, ...] = ()
    """strings before which an answer is cut; change it when answers go on with a question of their
    own"""
    max_new_tokens: Positive
    """ends an answer when some model holds that many generated tokens; change it when answers are
    cut short (stop reason `length`)"""
    scorer: Text
    """how texts are scored: one of the [scorers](#scorers)"""
    limit: Positive | None = None
    """only the first rows; change it when trying things out"""
    sample: SampleConfig | None = None
    """`size` rows that `seed` chooses, in file order; after `limit`; change it when a smaller run
    is to stand for the whole"""
    ids: Annotated[tuple[Identifier, ...], Field(min_length=1)] | None = None
    """only the rows of those ids; change it when some rows are of interest"""
    ids_file: Text | None = None
    """the same from a file with one id a line; change it when the list is long"""
    shards: Positive = 1
    """decode jobs per run; change it when a job takes much less or more than 10 to 30 minutes; each
    loads the models"""
    development: Text | None = None
    """the benchmark whose scores choose between models for this one; change it when a run of method
    `development_pair` has this benchmark"""
    batch_size: BatchSize | None = None
    """instead of that of `decode`; change it when one benchmark has longer prompts, or runs are
    timed"""
    timed: Flag = False
    """decode with nothing beside it on the machine; change it when seconds are to be compared"""
    paper: PaperFigures = PaperFigures()
    """what the paper says of it, beside our figures; change it when that is known"""
    use: Text | None = Field(None, exclude=True)
    """file with the benchmark's other fields; change it when several configurations share a
    benchmark"""

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
