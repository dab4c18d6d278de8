"""The section `benchmarks`: where rows come from, how they are asked and scored."""

from contextlib import suppress
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from adafuse.benchmarks.description import PaperFigures
from adafuse.benchmarks.prompts import SLOT, Layout
from adafuse.benchmarks.rows import Fields
from adafuse.decoding.words import StopAfter
from adafuse.errors import UserError
from adafuse.metrics.bertscore import wrong_language
from adafuse.metrics.registry import SCORERS
from adafuse.options import (
    BatchSize,
    Flag,
    Identifier,
    Located,
    Number,
    Positive,
    Section,
    Text,
    parse,
    refusing,
)
from adafuse.plugins import not_there
from adafuse.storage.files import located

PIN = (
    "pin it with `adafuse pin CONFIG` or source: {revision: COMMIT}, 40 hexadecimal digits from the"
    " history of its files on the hub"
)


def _folder(dataset: str) -> str:
    with suppress(UserError):  # which a name on the hub may look like
        return located(dataset)
    return dataset


class SourceConfig(Section):
    """Where the rows of a benchmark come from: a file, or a split of a dataset."""

    file: Located | None = None
    """JSON lines, a JSON list, CSV, TSV or Parquet; rows `{"question", "answer", optional "id"}`;
    change it when you have the rows as a file"""
    dataset: Annotated[Text, AfterValidator(_folder)] | None = None
    """a hub dataset `org/name`, or a folder in its layout; change it when the rows are on the hub
    """
    config: Text | None = None
    """configuration of the dataset; change it when the dataset has several"""
    answer_config: Text | None = None
    """second configuration, with the answers, joined by id; change it when questions and answers
    are in different configurations (FLORES: languages)"""
    split: Text | None = None
    """split of the dataset; change it when you want other rows"""
    revision: Text | None = None
    """commit of a hub dataset (required for one), 40 hexadecimal digits; change it when you need
    another version of the rows"""
    fields: Fields = Fields()
    """which fields of a record are question, answer and id; change it when they have other names"""

    @model_validator(mode="after")
    def _one_whole_source(self) -> Self:
        if (self.file is None) == (self.dataset is None):
            raise ValueError("give a `file` or a `dataset`, one of them")
        if self.file is not None:
            for key in ("config", "answer_config", "split", "revision"):
                if getattr(self, key) is not None:
                    raise ValueError(
                        f"{key} is for a dataset, not for a file; remove it, or set"
                        f" `{key}: null` in the configuration that is merged into this one"
                    )
        elif self.split is None:
            raise ValueError(f"dataset {self.dataset!r} has no split; add it: split: test")
        elif self.answer_config is not None and self.fields.id is None:
            raise ValueError("answer_config joins rows by id; name fields.id")
        return self


class ShotsConfig(Section):
    """A file with an instruction and few-shot examples, of which the first `count` are used."""

    file: Located
    """file with an instruction and few-shot examples"""
    count: Number | None = None
    """number of examples, from the first; all without it; change it when prompts are too long"""


class SampleConfig(Section):
    """A part of the rows that a seed decides."""

    size: Positive
    """number of rows"""
    seed: Number = 0
    """seed of the choice; change it when you want other rows"""
    skip: Number = 0
    """leave out the rows that a sample of this size would have; change it when development rows
    come from the same source as the test rows: `skip` is then the size of their sample"""


def _language(code: str) -> str:
    if wrong := wrong_language(code):
        raise ValueError(wrong)
    return code


def _stop(value: object) -> object:
    """Check an entry with keys by itself, as an error of either form would say it must be text."""
    if not isinstance(value, dict):
        return value
    with refusing():
        return parse(StopAfter, value, "stop string")


class BenchmarkConfig(Section):
    """A benchmark: rows, prompt template, stop conditions, scorer."""

    source: SourceConfig
    """where the rows come from"""
    prompt: Text
    """prompt template with `{question}` once"""
    shots: ShotsConfig | None = None
    """an instruction and few-shot examples; change it when the task needs them"""
    prompt_layout: Layout = "strict"
    """layout of few-shot examples; `strict`: like the question; `published`: the file's text
    unchanged, then a blank line; change it when you compare with the paper's numbers"""
    exclude_shots: Flag = True
    """mark rows that are few-shot examples of the prompt; `strict` scores leave them out; change it
    when you measure their effect, and only then"""
    stop: tuple[Annotated[Text | StopAfter, BeforeValidator(_stop)], ...] = ()
    """stop strings; the answer is cut before the first one; a stop string of white space applies
    only after other text, and `{string: S, after: T}` only after T; change it when models continue
    with questions of their own"""
    max_new_tokens: Positive
    """an answer ends after the round in which any model reaches this many generated tokens; change
    it when answers are cut short (stop reason `length`)"""
    within_budget: Flag = False
    """score only the beginning of each answer that fits into `max_new_tokens` tokens of at least
    one model, because the last span of an ensemble may exceed the limit; change it when answers are
    cut short (above 5 %)"""
    scorer: Text
    """how texts are scored: one of the [scorers](#scorers)"""
    bertscore: Annotated[Text, AfterValidator(_language)] | None = None
    """language of the answers, such as `de`, for BERTScore F1 beside the metrics of the scorer in
    `tables/metrics.md`; it needs `pip install '.[bertscore]'`, and the language's model is
    downloaded when the workflow is planned; change it when you report BERTScore"""
    limit: Positive | None = None
    """number of rows, from the first; change it when you try things out"""
    sample: SampleConfig | None = None
    """random `size` rows (by `seed`) in file order; after `limit`; change it when a smaller run
    should represent the whole"""
    ids: Annotated[tuple[Identifier, ...], Field(min_length=1)] | None = None
    """ids of the rows to use; change it when only some rows matter"""
    ids_file: Located | None = None
    """the same, from a file with one id per line; change it when the list is long"""
    shards: Annotated[Positive, Field(le=10_000)] = 1
    """decode jobs per run; change it when a job takes much less or more than 10 to 30 minutes"""
    development: Identifier | None = None
    """benchmark with development rows, on which `development_pair` chooses and gates are fitted;
    change it when a run has method `development_pair` or option `gate: development`"""
    calibration: Identifier | None = None
    """benchmark with the rows on which `certified` chooses, instead of `development`; change it
    when it chooses among runs with `gate: development`, whose gates are fitted on those"""
    batch_size: BatchSize | None = None
    """instead of `decode.batch_size`; change it when a benchmark has longer prompts, or runs are
    timed"""
    timed: Flag = False
    """decode with nothing else running on the machine; change it when you compare seconds"""
    served: Flag = True
    """`false`: load all models, also those with a `server`; change it when runs are timed: a server
    has other work, too"""
    paper: PaperFigures = PaperFigures()
    """the paper's statistics of this benchmark, shown next to ours; change it when you know them"""
    use: Text | None = Field(None, exclude=True)
    """file with the benchmark's other fields; change it when several configurations share a
    benchmark"""

    @property
    def certified_on(self) -> str | None:
        """The benchmark with the rows on which `certified` chooses."""
        return self.calibration or self.development

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
            raise ValueError(not_there("scorer", scorer, list(SCORERS)))
        return scorer

    @model_validator(mode="after")
    def _rows_are_chosen_in_one_way(self) -> Self:
        ways = ("ids", "ids_file", "limit", "sample")
        given = [key for key in ways if getattr(self, key) is not None]
        if len(given) > 1 and given[0].startswith("ids"):
            both = " and ".join(given[:2])
            raise ValueError(f"{both} choose rows in two ways; give one of them")
        return self
