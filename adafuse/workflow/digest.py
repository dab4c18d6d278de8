"""What makes two results the same: digests of rows, jobs and settings.

A step depends on what these functions read of the configuration, and on nothing else of it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from typing import Any

from adafuse.benchmarks.prompts import question_key
from adafuse.benchmarks.shards import Prepared, PreparedRow
from adafuse.config.config import Config
from adafuse.methods import resolve
from adafuse.methods.selections import Certified
from adafuse.metrics.bertscore import require_bertscore
from adafuse.metrics.registry import SCORERS
from adafuse.metrics.translation import require_model
from adafuse.models.files import content_digest, model_key
from adafuse.models.spec import ON_SERVER, ModelSpec
from adafuse.plugins import code_of
from adafuse.storage.journal import digest_of, text_digest
from adafuse.version import ENGINE_VERSION, SCORER_VERSIONS, SCORING_VERSION
from adafuse.workflow.benchmarks import benchmark_rows, prepare_benchmark
from adafuse.workflow.jobs import DecodeJob, answer_runs, decode_job, fit_job, gate_rows


def shard_digest(rows: Iterable[PreparedRow]) -> str:
    return digest_of(*([row.id, row.prompt_sha256, row.question] for row in rows))


def prepared_digest(prepared: Prepared) -> str:
    """Return the digest of everything that scoring and the report read of a benchmark."""
    rows = prepared.rows
    return digest_of(
        *([r.id, r.shard, r.prompt_sha256, r.question, r.shot, *r.answers] for r in rows)
    )


def scoring_version(scorer: str) -> int | str:
    """Return what changes when scores of the same texts may, as the code of another package."""
    own, outside = SCORER_VERSIONS.get(scorer), code_of(SCORERS[scorer])
    version = f"{SCORING_VERSION}.{own}" if own else SCORING_VERSION
    return f"{version}, {outside}" if outside else version


def decode_digest(job: DecodeJob, rows: str, answers: Sequence[str] = ()) -> str:
    """Return the digest of a job by those of its rows and of the shard traces it starts from."""
    return digest_of(job.benchmark, job.run, job_digest(job), rows, *answers)


def row_digests(
    job: DecodeJob, rows: Iterable[PreparedRow], answers: Sequence[Mapping[str, str]] = ()
) -> dict[str, str]:
    """Return by id what makes two decoded rows the same, whatever their run, shard or id.

    That is the prompt, the models, the method and its settings; for a method that starts from
    answers, also the digests of these, by model and id.
    """
    settings = job_digest(job)
    return {
        row.id: digest_of(
            settings, row.prompt_sha256, row.question, *(of[row.id] for of in answers)
        )
        for row in rows
    }


def job_digest(job: DecodeJob) -> str:
    """Return the digest of what all rows of a job have in common, but for the job's names.

    Devices are left out: a job that moves to another GPU gives the same result. So is
    `allow_pickle`: weights in another format are other files, which a model's key tells. Which
    server has a model is known when it decodes: `marked` tells its rows apart.
    """
    parts = job.record()
    for name in ("benchmark", "run", "devices", "allow_pickle", "checkpoints"):
        del parts[name]
    parts["models"] = [_key(model) for model in job.models]
    parts["options"] = _deciding_options(job)
    parts["engine_version"] = ENGINE_VERSION
    if scorer := job.options.get("scorer"):  # by whose rules answers are counted
        parts["scoring"] = scoring_version(scorer)
    if any(model.chat for model in job.models):
        parts["thoughts"] = "not ranked"  # before, stop strings applied to them, then not
    return text_digest(json.dumps(parts, sort_keys=True))


def _deciding_options(job: DecodeJob) -> dict[str, Any]:
    """Return a method's options: files by their content, without checkpoints that are not used."""
    named = {name for name in job.options if f"{name}_revision" in job.options}
    unused = named - job.checkpoints.keys()
    used = {
        option: value
        for option, value in job.options.items()
        if option.removesuffix("_revision") not in unused and not option.endswith("_allow_pickle")
    }
    for option, file in resolve(job.method, job.options).files.items():
        used[option] = job.gate or content_digest(file)
    return used | {name: _key(model) for name, model in job.checkpoints.items()}


def _key(model: ModelSpec) -> list[str | None]:
    served = model.server is not None
    key = model_key(model.name, model.revision, served=served)
    return [*key, ON_SERVER, model.server_model] if served else key


def merged_digest(shards: Sequence[str]) -> str:
    return text_digest("".join(shards))


class Digests:
    """What the results of a configuration depend on; everything is computed at most once.

    `missing` says why the rows of a benchmark cannot be had; they are none then.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.missing: dict[str, str] = {}
        self._prepared = cache(partial(prepare_benchmark, config))
        self.questions = cache(self._questions)
        self.decode_job = cache(self._make_job)
        self.bert_model = cache(require_bertscore)
        self.shard = cache(lambda benchmark, shard: self.prepared(benchmark).shard(shard))
        self.shard_digest = cache(lambda *cell: shard_digest(self.shard(*cell)))

    def prepared(self, benchmark: str) -> Prepared:
        """Return a benchmark's rows; none while it is missing."""
        return Prepared(()) if benchmark in self.missing else self._prepared(benchmark)

    def _questions(self, benchmark: str) -> dict[str, str]:
        """Return the row of each question, but for differences of writing; none while missing."""
        rows = () if benchmark in self.missing else benchmark_rows(self.config, benchmark)
        return {question_key(row.question): row.id for row in rows}

    @cached_property
    def code(self) -> dict[str, str]:
        """The digest of the plug-ins that each run and scorer uses, of those that use some."""
        runs = {name: self.config.runs[name] for name in self.config.decoded_runs}
        used = {f"run {n!r}": resolve(r.method, r.options).plugins for n, r in runs.items()}
        for task in self.config.benchmarks.values():
            used[f"scorer {task.scorer!r}"] = code_of(SCORERS[task.scorer])
        return {user: digest_of(*code.values()) for user, code in used.items() if code}

    def shards(self, benchmark: str) -> list[int]:
        return list(range(self.config.benchmarks[benchmark].shards))

    def fit_digest(self, benchmark: str, run: str) -> str:
        """Return the digest of the gate that a run learns from the rows of a benchmark."""
        rows = prepared_digest(self.prepared(benchmark))
        scorer = self.config.benchmarks[benchmark].scorer
        settings = job_digest(fit_job(self.config, benchmark, run))
        return digest_of("fit", settings, rows, scorer, scoring_version(scorer))

    def _make_job(self, benchmark: str, run: str) -> DecodeJob:
        job, on = decode_job(self.config, benchmark, run), gate_rows(self.config, benchmark, run)
        return job if on is None else replace(job, gate=self.fit_digest(on, run), fitted_on=on)

    def digest(self, benchmark: str, run: str, shard: int) -> str:
        """Return the digest of a decode job."""
        answers = [self.digest(benchmark, r, shard) for r in answer_runs(self.config, run)]
        return decode_digest(
            self.decode_job(benchmark, run), self.shard_digest(benchmark, shard), answers
        )

    def row_digests(self, benchmark: str, run: str, shard: int) -> dict[str, str]:
        answers = [self.row_digests(benchmark, r, shard) for r in answer_runs(self.config, run)]
        return row_digests(self.decode_job(benchmark, run), self.shard(benchmark, shard), answers)

    def digests(self, benchmark: str, run: str) -> list[str]:
        return [self.digest(benchmark, run, shard) for shard in self.shards(benchmark)]

    def score_settings(self, benchmark: str) -> list[Any]:
        """Return what a score depends on besides the rows and the trace."""
        task = self.config.benchmarks[benchmark]
        needs_spm = SCORERS[task.scorer].needs_spm and SPBLEU not in self.missing
        spm = require_model(self.config.spm_sha256) if needs_spm else None
        settings = [task.scorer, task.within_budget, spm, scoring_version(task.scorer)]
        if (language := task.bertscore) is not None:
            settings.append(None if BERTSCORE in self.missing else str(self.bert_model(language)))
        return settings


SPBLEU = "spBLEU"
"""What is missing without the SentencePiece model of spBLEU."""
BERTSCORE = "BERTScore"
"""What is missing without the package bert-score, or without a model that it needs."""


def _published(config: Config) -> str | None:
    numbers = config.published_numbers
    return content_digest(numbers) if numbers else None


def runs_settings(config: Config) -> str:
    runs = {name: config.runs[name] for name in config.main_runs}
    named = {name: [run.method, run.models] for name, run in runs.items()}
    return json.dumps([named, config.main.study, config.main.margin])


def table_settings(config: Config) -> str:
    parts = {"note": config.note, "paper": _published(config), "runs": runs_settings(config)}
    return json.dumps(parts)


def experiment_settings(config: Config, name: str) -> str:
    experiment = config.experiments[name]
    paper = _published(config) if experiment.published else None
    runs = [
        config.runs[r].model_dump(mode="json", exclude={"cluster", "served"})
        for r in experiment.runs
    ]
    timed = [config.benchmarks[benchmark].timed for benchmark in experiment.benchmarks]
    parts = [experiment.model_dump(mode="json"), runs, paper, timed]
    return json.dumps([*parts, config.main.margin], sort_keys=True)


def choice_settings(config: Config, run: str) -> str:
    chosen = config.runs[run]
    candidates = {name: config.runs[name].models for name in chosen.options.get("runs", [])}
    parts: list[Any] = [chosen.method, chosen.models, candidates]
    if chosen.method == Certified.name:
        parts += [chosen.options, config.main.margin]
    return json.dumps(parts)


_WHERE_JOBS_RUN: Any = {
    "results": True,
    "targets": True,
    "cluster": True,
    "container": True,
    "envmodules": True,
    "decode": {"device", "gpu", "max_error_share"},
    "models": {
        "__all__": {
            "device": True,
            "server": True,
            "server_key": True,
            "serve": {"command", "gpus"},
        }
    },
    "runs": {"__all__": {"cluster"}},
}


def reported_config(config: Config) -> dict[str, Any]:
    """Return the configuration as the report shows it: JSON-ready, without where jobs run."""
    return config.model_dump(mode="json", exclude=_WHERE_JOBS_RUN, exclude_defaults=True)
