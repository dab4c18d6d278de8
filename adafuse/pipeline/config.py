"""The workflow's configuration: frozen, typed, unknown keys refused.

What each field means for a user is told in config/README.md; `adafuse.pipeline.parse` turns what
is wrong into one sentence, `adafuse.pipeline.checks` holds what no single field can know.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from adafuse.methods.options import BatchSize

SAFE_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"

Name = Annotated[str, Field(pattern=SAFE_NAME)]
Text = Annotated[str, Field(min_length=1, strict=True)]
Count = Annotated[int, Field(ge=1, strict=True)]
Number = Annotated[int, Field(ge=0, strict=True)]
Figure = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
Flag = Annotated[bool, Field(strict=True)]
Target = Literal["tables", "experiments", "report"]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _as_text(identifier: object) -> object:
    whole = isinstance(identifier, int) and not isinstance(identifier, bool)
    return str(identifier) if whole else identifier


Identifier = Annotated[Text, BeforeValidator(_as_text, json_schema_input_type=str | int)]


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelConfig(Section):
    """A folder or hub id, and how the model is loaded, prompted and placed."""

    path: Text
    revision: Text | None = None
    chat: Flag = False
    device: Text | None = None
    quantization: Literal["int8", "int4"] | None = None
    trust_remote_code: Flag = False
    allow_pickle: Flag = False


class FieldsConfig(Section):
    """Where a record of the source holds what; see `adafuse.benchmarks.fields.Fields`."""

    question: Text = "question"
    answer: Text = "answer"
    id: Text | None = None
    final_after: Text | None = None


class SourceConfig(Section):
    """Where the rows of a benchmark come from: a file, or a split of a dataset."""

    file: Text | None = None
    dataset: Text | None = None
    config: Text | None = None
    answer_config: Text | None = None
    split: Text | None = None
    revision: Text | None = None
    fields: FieldsConfig = FieldsConfig()


class ShotsConfig(Section):
    """A file with an instruction and worked examples, of which the first `count` are used."""

    file: Text
    count: Number | None = None


class SampleConfig(Section):
    """A part of the rows that a seed decides."""

    size: Count
    seed: Number = 0


class PaperConfig(Section):
    """What the paper's appendix C says of the benchmark, to be shown beside our figures."""

    rows: Count | None = None
    question_chars: Figure | None = None
    answer_chars: Figure | None = None


class BenchmarkConfig(Section):
    """A task: its rows, the text around each question, when an answer ends, how it is scored.

    `development` names the benchmark whose scores choose between models for this one. A `timed`
    benchmark is decoded with nothing else running on the machine; `batch_size` goes before that of
    `decode`.
    """

    source: SourceConfig
    prompt: Text
    shots: ShotsConfig | None = None
    frame: Literal["strict", "published"] = "strict"
    exclude_shots: Flag = True
    stop: tuple[Text, ...] = ()
    max_new_tokens: Count
    metric: Text
    limit: Count | None = None
    sample: SampleConfig | None = None
    ids: Annotated[tuple[Identifier, ...], Field(min_length=1)] | None = None
    ids_file: Text | None = None
    shards: Count = 1
    development: Text | None = None
    batch_size: BatchSize | None = None
    timed: Flag = False
    paper: PaperConfig = PaperConfig()


class JobSize(Section):
    """What the decode jobs of a run ask a cluster for, instead of an estimate."""

    gpu: Number | None = None
    mem_mb: Count | None = None
    runtime: Count | None = None


class RunConfig(Section):
    """A method with its options on an ordered list of models."""

    method: Text
    models: Annotated[tuple[Text, ...], Field(min_length=1)]
    weights: tuple[Weight, ...] | None = None
    options: dict[str, Any] = {}
    max_rounds: Count | None = None
    cluster: JobSize = JobSize()


class MainConfig(Section):
    """What the main table and the comparisons show; all runs on all benchmarks by default."""

    runs: tuple[Text, ...] | None = None
    benchmarks: tuple[Text, ...] | None = None


class ExperimentConfig(Section):
    """A table or figure of the paper: some runs on some benchmarks, and what is drawn of them.

    `kind` is what is measured: scores of the runs; a sweep of scores over an option's values
    (`options`: the runs' names for it); seconds per example; words per round; or scores with paired
    tests between all the runs. `published` maps runs to rows of Table 1 in the paper's numbers.
    """

    title: Text
    kind: Literal["scores", "sweep", "runtime", "words_per_round", "paired"]
    benchmarks: Annotated[tuple[Text, ...], Field(min_length=1)]
    runs: Annotated[tuple[Text, ...], Field(min_length=1)]
    options: tuple[Text, ...] = ()
    published: dict[str, Text] = {}


class DecodeConfig(Section):
    """How decode jobs run. `device` and `gpu` are places, not part of a result's identity.

    `max_error_share` is the part of a shard's rows that may fail before the job does.

    `dtype` has no "auto": the same configuration must mean the same numbers on every machine.
    """

    engine: Literal["tree", "reference"] = "tree"
    batch_size: BatchSize = 16
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    device: Text = "auto"
    gpu: Annotated[int, Field(ge=0, strict=True)] = 1
    max_error_share: Annotated[float, Field(ge=0, le=1, strict=True)] = 0.1


class ClusterConfig(Section):
    """What decode jobs ask a cluster for: megabytes, minutes, and the most of both.

    `uniform` has all ask for what the largest of them needs, as the tasks of an array must.
    """

    mem_mb: Count | None = None
    runtime: Count | None = None
    max_mem_mb: Count | None = None
    max_runtime: Count | None = None
    uniform: Flag = False


class Config(Section):
    """Everything that the workflow reads from its configuration file."""

    results: Text = "results"
    note: Text | None = None
    models: Annotated[dict[Name, ModelConfig], Field(min_length=1)]
    benchmarks: Annotated[dict[Name, BenchmarkConfig], Field(min_length=1)]
    runs: Annotated[dict[Name, RunConfig], Field(min_length=1)]
    main: MainConfig = MainConfig()
    experiments: dict[Name, ExperimentConfig] = {}
    targets: Annotated[
        tuple[Literal["tables", "experiments", "report"], ...], Field(min_length=1)
    ] = (
        "tables",
        "report",
    )
    protocols: Annotated[tuple[Literal["strict", "published"], ...], Field(min_length=1)] = (
        "strict",
    )
    spm_sha256: Text | None = None
    published_numbers: Text | None = None
    decode: DecodeConfig = DecodeConfig()
    cluster: ClusterConfig = ClusterConfig()

    @property
    def main_runs(self) -> list[str]:
        """Runs of the main table."""
        return list(self.runs if self.main.runs is None else self.main.runs)

    @property
    def main_benchmarks(self) -> list[str]:
        """Benchmarks of the main table."""
        return list(self.benchmarks if self.main.benchmarks is None else self.main.benchmarks)

    def batch_size(self, benchmark: str) -> int | Literal["auto"]:
        """Return how many examples of a benchmark are decoded at a time."""
        return self.benchmarks[benchmark].batch_size or self.decode.batch_size
