"""The workflow's configuration: frozen, typed, unknown keys refused.

The sections are in `adafuse.config`; what each field means is told where it is declared, and
`python -m adafuse.docs` makes config/README.md of it. `adafuse.config.reading` turns what is wrong
into one sentence, `adafuse.config.checks` holds what no single field can know.
"""

from typing import Annotated, Literal

from pydantic import Field

from adafuse.config.benchmarks import (
    BenchmarkConfig,
    FieldsConfig,
    PaperConfig,
    SampleConfig,
    ShotsConfig,
    SourceConfig,
)
from adafuse.config.fields import SAFE_NAME, Name, Section, Text
from adafuse.config.runs import (
    ClusterConfig,
    DecodeConfig,
    ExperimentConfig,
    JobSize,
    MainConfig,
    ModelConfig,
    RunConfig,
)
from adafuse.decoding.options import told
from adafuse.errors import UserError

__all__ = [
    "SAFE_NAME",
    "BenchmarkConfig",
    "ClusterConfig",
    "Config",
    "DecodeConfig",
    "ExperimentConfig",
    "FieldsConfig",
    "JobSize",
    "MainConfig",
    "ModelConfig",
    "PaperConfig",
    "RunConfig",
    "SampleConfig",
    "Section",
    "ShotsConfig",
    "SourceConfig",
]


class Config(Section):
    """Everything that the workflow reads from its configuration file."""

    results: Annotated[
        Text,
        told(
            "folder that takes everything that is written", "you want to keep two experiments apart"
        ),
    ] = "results"
    note: Annotated[
        Text | None,
        told("printed above the table", "a reader must know something before the numbers"),
    ] = None
    models: Annotated[
        Annotated[dict[Name, ModelConfig], Field(min_length=1)], told("the models by name")
    ]
    benchmarks: Annotated[
        Annotated[dict[Name, BenchmarkConfig], Field(min_length=1)],
        told("the tasks by name; their order is that of the columns"),
    ]
    runs: Annotated[
        Annotated[dict[Name, RunConfig], Field(min_length=1)],
        told(
            "a method with its options on a list of models, by name; their order is that of the"
            " rows"
        ),
    ]
    main: Annotated[
        MainConfig,
        told(
            "`runs` and `benchmarks` of the main table and the comparisons; all without it",
            "only some of the runs belong there",
        ),
    ] = MainConfig()
    experiments: Annotated[
        dict[Name, ExperimentConfig],
        told(
            "tables and figures by name, each a target: `snakemake figure_6`; so a name is made of"
            " letters, digits (not first) and `_`, and is not that of a rule of the workflow"
            " (`all`, `paper`, `decode`, ...)",
            "the main table is not all that you want to see",
        ),
    ] = Field(default_factory=dict)
    targets: Annotated[
        Annotated[tuple[Literal["tables", "experiments", "report"], ...], Field(min_length=1)],
        told(
            "what plain `snakemake` makes: `tables`; `experiments`, for which there must be"
            " experiments; `report`, the pages for a browser ([docs/report.md](../docs/report.md))",
            "the experiments are always wanted, or the report is not",
        ),
    ] = ("tables", "report")
    protocols: Annotated[
        Annotated[tuple[Literal["strict", "published"], ...], Field(min_length=1)],
        told(
            "`[strict]` or `[strict, published]`: the latter adds tables of the published scorer"
            " and an audit of what only it accepts",
            "you compare with published numbers",
        ),
    ] = ("strict",)
    spm_sha256: Annotated[
        Text | None,
        told(
            "the SentencePiece model that `translation` must find",
            "two machines must give the same spBLEU",
        ),
    ] = None
    published_numbers: Annotated[
        Text | None,
        told(
            "`config/published.yaml`: shows the numbers that the paper prints, in a table of their"
            " own",
            "you reproduce the paper",
        ),
    ] = None
    decode: Annotated[DecodeConfig, told("how decode jobs run", "they run on a GPU")] = (
        DecodeConfig()
    )
    cluster: Annotated[
        ClusterConfig,
        told("what decode jobs ask a cluster for", "its limits, or an estimate, do not fit"),
    ] = ClusterConfig()

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

    def single_model_runs(self, run: RunConfig) -> list[str]:
        """Return the run of method `single` of each model, with as many rounds as `run` has.

        Weights and options do not change a single model's text.

        Raises:
            UserError: a model has none, or several, so that it is open which one is meant.
        """
        return [self._single_model_run(run, model) for model in run.models]

    def _single_model_run(self, run: RunConfig, model: str) -> str:
        looked_for = ("single", (model,), run.max_rounds)
        found = [
            name
            for name, other in self.runs.items()
            if (other.method, other.models, other.max_rounds) == looked_for
        ]
        rounds = "" if run.max_rounds is None else f" and max_rounds {run.max_rounds}"
        if not found:
            raise UserError(
                f"method {run.method} needs what each model writes on its own; add a run of method"
                f" single with the model {model}{rounds}"
            )
        if len(found) > 1:
            raise UserError(
                f"method {run.method} needs one run of method single with the model"
                f" {model}{rounds}, but {' and '.join(map(repr, found))} are such runs; leave one"
                " of them"
            )
        return found[0]
