"""A decode job: one run on one shard, and the digest that tells its result from every other."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from adafuse.methods import resolve
from adafuse.pipeline.config import Config
from adafuse.pipeline.identity import ModelIdentity, model_identity
from adafuse.version import ENGINE_VERSION


@dataclass(frozen=True, slots=True)
class DecodeJob:
    """Everything that decoding a shard needs to know besides its rows.

    `options` are complete: defaults filled in. `chat`, `devices` and what else is said of models
    have one entry per model. `checkpoints` are the models that options name, under the options'
    names, as far as the method uses them.
    """

    benchmark: str
    run: str
    models: tuple[ModelIdentity, ...]
    chat: tuple[bool, ...]
    devices: tuple[str, ...]
    quantization: tuple[str | None, ...]
    trust_remote_code: tuple[bool, ...]
    allow_pickle: tuple[bool, ...]
    weights: tuple[float, ...] | None
    method: str
    options: dict[str, Any]
    checkpoints: dict[str, ModelIdentity]
    stop: tuple[str, ...]
    max_new_tokens: int
    max_rounds: int | None
    engine: str
    batch_size: int | Literal["auto"]
    dtype: str

    def digest(self, rows_digest: str, answers: Sequence[str] = ()) -> str:
        """Return the identity of this job's result on the rows with that `shard_digest`.

        `answers` are the digests of the jobs that it starts from.

        Devices are left out: moving a job to another GPU does not make its result another one. So
        is what may be read: weights in another format are other files, which a model's key tells.
        """
        parts = asdict(self)
        del parts["devices"], parts["allow_pickle"]
        parts["models"] = [model.key() for model in self.models]
        del parts["checkpoints"]
        parts["options"] = self._deciding_options()
        parts["rows"] = rows_digest
        parts["answers"] = list(answers)
        parts["engine_version"] = ENGINE_VERSION
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]

    def _deciding_options(self) -> dict[str, Any]:
        named = {name for name in self.options if f"{name}_revision" in self.options}
        unused = named - self.checkpoints.keys()
        left_out = unused | {f"{name}_revision" for name in unused}
        kept = {name: value for name, value in self.options.items() if name not in left_out}
        return kept | {name: model.key() for name, model in self.checkpoints.items()}


def decode_job(config: Config, benchmark: str, run: str) -> DecodeJob:
    """Put together what a configuration says of a benchmark and a run."""
    task, spec, settings = config.benchmarks[benchmark], config.runs[run], config.decode
    models = [config.models[name] for name in spec.models]
    method = resolve(spec.method, spec.options)
    options = method.options.model_dump(mode="json")
    return DecodeJob(
        benchmark=benchmark,
        run=run,
        models=tuple(model_identity(model.path, model.revision) for model in models),
        chat=tuple(model.chat for model in models),
        devices=tuple(model.device or settings.device for model in models),
        quantization=tuple(model.quantization for model in models),
        trust_remote_code=tuple(model.trust_remote_code for model in models),
        allow_pickle=tuple(model.allow_pickle for model in models),
        weights=spec.weights,
        method=spec.method,
        options=options,
        checkpoints={
            name: model_identity(options[name], options[f"{name}_revision"])
            for name in method.checkpoints
        },
        stop=task.stop,
        max_new_tokens=task.max_new_tokens,
        max_rounds=spec.max_rounds,
        engine=settings.engine,
        batch_size=config.batch_size(benchmark),
        dtype=settings.dtype,
    )
