"""A decode job: what is decoded with what, and what it asks a cluster for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from adafuse.config.config import Config
from adafuse.config.runs import ClusterConfig
from adafuse.config.serve import BY_WORKFLOW, ServeConfig
from adafuse.decoding.words import Settings
from adafuse.methods import METHODS, resolve
from adafuse.models.files import content_digest, item_bytes, weight_bytes
from adafuse.models.spec import AUTO, ON_SERVER, SERVER, DeviceName, ModelSpec, columns


@dataclass(frozen=True, slots=True)
class DecodeJob:
    """Everything that decoding a shard needs to know besides its rows.

    `options` has the defaults filled in; `checkpoints` are the models that options name, by option,
    as far as the method uses them. Where `options` ask for a gate that the workflow fits, `gate` is
    its digest, and `fitted_on` the benchmark whose rows it is fitted on. `serve` says for each
    model what server of it the workflow starts, if any.
    """

    benchmark: str
    run: str
    models: tuple[ModelSpec, ...]
    weights: tuple[float, ...] | None
    method: str
    options: dict[str, Any]
    checkpoints: dict[str, ModelSpec]
    settings: Settings
    timed: bool = False
    gate: str | None = None
    fitted_on: str | None = None
    serve: tuple[ServeConfig | None, ...] = ()

    def with_gate(self, gate: Path | None) -> "DecodeJob":
        """Return the job with the gate that was fitted for it."""
        return self if gate is None else replace(self, options=self.options | {"gate": str(gate)})

    @property
    def served(self) -> bool:
        """Whether it uses servers."""
        return any(model.server is not None for model in _used(self))

    @property
    def plugins(self) -> dict[str, str]:
        """The packages from outside that decode, with the digest of their code."""
        return resolve(self.method, self.options).plugins

    def record(self) -> dict[str, Any]:
        """Return what the metadata of a trace holds, JSON-ready; lists have one entry per model."""
        apart = ("path", "adapter", "revision", "device", "dtype", *SERVER)
        names = [name for name in ModelSpec.model_fields if name not in apart]
        here = self.checkpoints or any(model.server is None for model in self.models)
        return {
            "benchmark": self.benchmark,
            "run": self.run,
            "weights": self.weights,
            "method": self.method,
            "options": self.options,
            **self.settings.model_dump(exclude={"drafts"}),  # which change no text
            **columns(self.models, {name: name for name in names}),
            "devices": [ON_SERVER if model.server else model.device for model in self.models],
            "models": [_identity(model) for model in self.models],
            "checkpoints": {name: _identity(model) for name, model in self.checkpoints.items()},
            "dtype": self.models[0].dtype if here else None,
            **({"timed": True} if self.timed else {}),
            **({"fitted_on": self.fitted_on} if self.fitted_on else {}),
            **({"plugins": self.plugins} if self.plugins else {}),
            **({"serve": [s and s.identity for s in self.serve]} if any(self.serve) else {}),
        }


def _identity(model: ModelSpec) -> dict[str, Any]:
    content = content_digest(model.path, served=model.server is not None)
    identity: dict[str, Any] = {
        "path": model.path,
        "revision": model.revision,
        "content": content,
    }
    if model.server:
        identity |= {"on_server": True, "server_model": model.server_model}
    if model.adapter:
        identity["adapter"] = {"path": model.adapter, "content": content_digest(model.adapter)}
    return identity


def gate_rows(config: Config, benchmark: str, run: str) -> str | None:
    """Return the benchmark whose rows the gate of a run is fitted on, if the workflow fits one."""
    return config.benchmarks[benchmark].development if config.needs_fit(run) else None


def answer_runs(config: Config, run: str) -> list[str]:
    """Return the runs whose texts a run starts from, one per model; mostly none."""
    spec = config.runs[run]
    if spec.method not in METHODS or not METHODS[spec.method].reads_answers:
        return []
    return config.single_model_runs(spec)


def fit_job(config: Config, benchmark: str, run: str) -> DecodeJob:
    """Return the job that tries choices on development rows: a run's, without its gate."""
    spec = config.runs[run]
    options = resolve(spec.method, spec.options).unfitted
    plain = {**config.runs, run: spec.model_copy(update={"options": options})}
    return decode_job(config.model_copy(update={"runs": plain}), benchmark, run)


def decode_job(config: Config, benchmark: str, run: str) -> DecodeJob:
    task, spec = config.benchmarks[benchmark], config.runs[run]
    method = resolve(spec.method, spec.options).for_scorer(task.scorer)
    options = method.options.model_dump(mode="json")
    named = {option: method.checkpoint(option) for option in method.checkpoints}
    models = config.model_specs(benchmark, run)
    return DecodeJob(
        benchmark=benchmark,
        run=run,
        models=models,
        weights=spec.weights,
        method=spec.method,
        options=options,
        checkpoints={
            name: ModelSpec(
                path=entry.path,
                revision=entry.revision,
                allow_pickle=entry.allow_pickle,
                dtype=config.decode.dtype,
            )
            for name, entry in named.items()
        },
        settings=Settings(
            stop=task.stop,
            max_new_tokens=task.max_new_tokens,
            max_rounds=spec.max_rounds,
            engine=config.decode.engine,
            batch_size=config.batch_size(benchmark),
        ),
        timed=task.timed,
        serve=tuple(
            config.models[name].serve if model.server == BY_WORKFLOW else None
            for name, model in zip(spec.models, models, strict=True)
        ),
    )


def started_servers(config: Config, benchmark: str, run: str) -> list[str]:
    """Return the models whose servers the workflow starts for the decode jobs of a run."""
    spec = config.runs[run]
    if not METHODS[spec.method].uses_models:
        return []
    models = zip(spec.models, config.model_specs(benchmark, run), strict=True)
    return [name for name, model in models if model.server == BY_WORKFLOW]


ASSUMED_PARAMETERS = 8e9  # of a model that is not on this machine
MB = 1_000_000
BASE_MB = 6000  # memory of a job besides weights: Python, torch and its CUDA libraries
WEIGHT_MARGIN = 1.5  # memory in terms of the weights that are in it at a time
START_MINUTES = 20  # time of a job besides reading weights and decoding
READ_BYTES = 200e6  # weights that are read per second from a busy shared file system
DECODE_BYTES = {"gpu": 1e12, "cpu": 1e10}  # weights per second; each token needs all of them once
DECODE_MARGIN = 10  # forwards per committed token, with many candidates and models that disagree
BATCH = 8  # examples that are decoded at a time without each taking longer; more gain less


class Resources(NamedTuple):
    """GPUs, megabytes of memory and minutes that a job asks for."""

    gpu: int
    mem_mb: int
    runtime: int

    def for_attempt(self, attempt: int, limits: ClusterConfig) -> "Resources":
        """Return what an attempt asks for, counted from 1: more, up to the limits."""
        memory, minutes = self.mem_mb * attempt, self.runtime * attempt
        return Resources(
            self.gpu,
            min(memory, limits.max_mem_mb or memory),
            min(minutes, limits.max_runtime or minutes),
        )


def estimate(job: DecodeJob, rows: int, config: Config) -> Resources:
    """Return what the first attempt of a job asks for; sizes that the user gives come first."""
    cluster, own = config.cluster, config.runs[job.run].cluster
    cards = gpus(job, config.decode.gpu) if own.gpu is None else own.gpu
    held = [model_bytes(model) for model in loaded(job)]
    # Quantized weights are read whole, and are not faster.
    read = [model_bytes(model, quantized=False) for model in loaded(job)]
    there = [model_bytes(model) for model in _used(job) if model.server is not None]
    return Resources(
        cards,
        own.mem_mb or cluster.mem_mb or memory_mb(held, cards),
        own.runtime or cluster.runtime or runtime(job, read, rows, cards, there),
    )


def loaded(job: DecodeJob) -> list[ModelSpec]:
    """Return the models whose weights a job loads."""
    return [*(m for m in _used(job) if m.server is None), *job.checkpoints.values()]


def _used(job: DecodeJob) -> tuple[ModelSpec, ...]:
    return job.models if METHODS[job.method].uses_models else ()


def gpus(job: DecodeJob, most: int) -> int:
    """Return how many GPUs a job can use, up to `most`.

    A model on `auto` takes one, `balanced` and `sequential` take all; `cuda:1`, also in a list,
    exists only if there are two. The configuration is refused if `most` is less. Models on servers
    take none; what a method loads itself is where the first model would be.
    """
    models = [model for model in _used(job) if model.server is None]
    if not models and (job.checkpoints or not METHODS[job.method].uses_models):
        models = [job.models[0]]
    if not models:
        return 0
    names = [DeviceName.parse(model.device) for model in models]
    if any(name.strategy is not None and not name.devices for name in names):
        return most
    in_turn = sum(name.kind == AUTO for name in names)
    return min(most, max(1, in_turn, *(name.gpus for name in names)))


def model_bytes(model: ModelSpec, *, quantized: bool = True) -> float:
    """Return the bytes of a model's weights, or a guess; in its dtype unless `quantized`."""
    how = model.quantization if quantized else None
    size = weight_bytes(model.path, model.revision, model.dtype, how)
    return ASSUMED_PARAMETERS * item_bytes(model.dtype, how) if size is None else size


def memory_mb(weights: Sequence[float], cards: int) -> int:
    """Return the megabytes of a job; with a GPU, it holds the weights of one model at a time."""
    held = max(weights, default=0) if cards else sum(weights)
    return _round_up(BASE_MB + WEIGHT_MARGIN * held / MB, 1000)


def runtime(
    job: DecodeJob,
    weights: Sequence[float],
    rows: int,
    cards: int,
    served: Sequence[float] = (),
) -> int:
    """Return the minutes of a job, by the bytes of what it loads, and of what servers have.

    A server is taken to be a GPU that has nothing else to do.
    """
    decoding = least_seconds(job, weights, rows, cards) + least_seconds(job, served, rows, 1)
    seconds = sum(weights) / READ_BYTES + DECODE_MARGIN * decoding
    return _round_up(START_MINUTES + seconds / 60, 10)


def least_seconds(job: DecodeJob, weights: Sequence[float], rows: int, cards: int) -> float:
    """Return the seconds of decoding if each token passes all weights once, in full batches.

    That counts as many tokens as a row may have, and no start.
    """
    token = sum(weights) / DECODE_BYTES["gpu" if cards else "cpu"]
    size = job.settings.batch_size
    batch = BATCH if size == "auto" else min(size, BATCH)
    return rows * job.settings.max_new_tokens * token / batch


def _round_up(value: float, step: int) -> int:
    return math.ceil(value / step) * step
