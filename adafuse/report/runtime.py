"""Seconds per example, from the traces; only what was measured alike shares a figure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from adafuse.errors import UserError
from adafuse.metrics.intervals import bootstrap
from adafuse.models.spec import DeviceName
from adafuse.parquet import read_metadata, read_rows
from adafuse.report.experiments import Experiment, RuntimePoint


@dataclass(frozen=True, slots=True)
class _Conditions:
    """The conditions under which a trace was measured, as far as it says."""

    batch_size: int
    dtype: str
    devices: tuple[str, ...]
    engine: str
    torch: str

    def alike(self) -> dict[str, object]:
        """What must be the same in one figure; which of several GPUs it was need not."""
        kinds = sorted({DeviceName.parse(device).kind for device in self.devices})
        return {
            "batch size": self.batch_size,
            "dtype": self.dtype,
            "device": "+".join(kinds),
            "engine": self.engine,
            "torch": self.torch,
        }


def runtime_points(experiment: Experiment) -> list[RuntimePoint]:
    """Return the times of every run on every benchmark.

    Raises:
        UserError: a trace is missing, has no finished example, or was measured under other
            conditions than the rest.
    """
    section = experiment.section
    points: list[RuntimePoint] = []
    first: tuple[Path, _Conditions] | None = None
    for benchmark in section.benchmarks:
        row = []
        for run in section.runs:
            trace = experiment.trace(benchmark, run)
            conditions = _conditions(trace)
            first = first or (trace, conditions)
            _refuse_mixture(*first, trace, conditions)
            row.append(_point(experiment, benchmark, run, trace, conditions))
        points += relative_to_members(
            row, {name: experiment.run(name).models for name in section.runs}
        )
    return points


def relative_to_members(
    points: Sequence[RuntimePoint], models: Mapping[str, Sequence[str]]
) -> list[RuntimePoint]:
    """Relate each ensemble's mean to the sum of its models' means, where all are known.

    Args:
        points: one benchmark's.
        models: the models of each run by name.
    """
    single: dict[str, float] = {}
    for point in points:
        if point.method == "single":
            single.setdefault(models[point.run][0], point.seconds_mean)
    return [
        replace(
            point,
            mean_relative_to_members=point.seconds_mean
            / sum(single[name] for name in models[point.run]),
        )
        if len(models[point.run]) > 1 and single.keys() >= set(models[point.run])
        else point
        for point in points
    ]


def _conditions(trace: Path) -> _Conditions:
    metadata = read_metadata(trace)
    try:
        found = [_shard_conditions(shard) for shard in metadata["shards"]]
    except KeyError as error:
        raise UserError(
            f"trace {str(trace)!r} does not say how it was decoded (no {error}); only runs that"
            " decode have a runtime"
        ) from None
    for other in found:
        _refuse_mixture(trace, found[0], trace, other)
    return found[0]


def _shard_conditions(shard: Mapping[str, Any]) -> _Conditions:
    job = shard["job"]
    return _Conditions(
        batch_size=job["batch_size"],
        dtype=job["dtype"],
        devices=tuple(job["devices"]),
        engine=job["engine"],
        torch=str(shard["versions"]["torch"]),
    )


def _refuse_mixture(first: Path, one: _Conditions, trace: Path, other: _Conditions) -> None:
    for (name, left), right in zip(one.alike().items(), other.alike().values(), strict=True):
        if left != right:
            raise UserError(
                f"the times of {str(first)!r} ({name} {left}) and {str(trace)!r} ({name} {right})"
                " cannot be compared; decode both alike"
            )


def _point(
    experiment: Experiment, benchmark: str, run: str, trace: Path, conditions: _Conditions
) -> RuntimePoint:
    import numpy as np

    rows = read_rows(trace, ["seconds", "stop_reason"])
    seconds = np.array([row["seconds"] for row in rows if row["stop_reason"] != "error"])
    if not len(seconds):
        raise UserError(
            f"trace {str(trace)!r} has no example that was decoded to its end; see its column error"
        )
    low, high = bootstrap(len(seconds), lambda chosen: float(seconds[chosen].mean()))
    quartiles = [float(each) for each in np.quantile(seconds, (0.25, 0.5, 0.75))]
    return RuntimePoint(
        **asdict(experiment.names(run)),
        benchmark=benchmark,
        n=len(seconds),
        failed=len(rows) - len(seconds),
        seconds_median=quartiles[1],
        seconds_quartile_1=quartiles[0],
        seconds_quartile_3=quartiles[2],
        seconds_mean=float(seconds.mean()),
        seconds_mean_low_bootstrap95=low,
        seconds_mean_high_bootstrap95=high,
        mean_relative_to_members=None,
        batch_size=conditions.batch_size,
        dtype=conditions.dtype,
        devices=" ".join(conditions.devices),
        engine=conditions.engine,
        torch=conditions.torch,
        timed=experiment.config.benchmarks[benchmark].timed,
    )
