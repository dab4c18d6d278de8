"""What pydantic finds wrong with a configuration, as one sentence."""

from pydantic_core import ErrorDetails

from adafuse.pipeline.config import (
    BenchmarkConfig,
    Config,
    DecodeConfig,
    ExperimentConfig,
    FieldsConfig,
    MainConfig,
    ModelConfig,
    PaperConfig,
    RunConfig,
    SampleConfig,
    Section,
    ShotsConfig,
    SourceConfig,
)

_NAMED: dict[str, type[Section]] = {
    "models": ModelConfig,
    "benchmarks": BenchmarkConfig,
    "runs": RunConfig,
    "experiments": ExperimentConfig,
}
_OF_BENCHMARK: dict[str, type[Section]] = {
    "source": SourceConfig,
    "source.fields": FieldsConfig,
    "shots": ShotsConfig,
    "sample": SampleConfig,
    "paper": PaperConfig,
}


def sentence(error: ErrorDetails, benchmark_file: str | None = None) -> str:
    """Say what is wrong, where, and what would be right.

    `benchmark_file` is what the values come from, if not from the configuration itself.
    """
    location = [str(part) for part in error["loc"]] or ["config"]
    inside = ["benchmarks", benchmark_file] if benchmark_file else []
    *above, last = location
    where = ".".join([*inside[1:], *above]) or "the config"
    match error["type"]:
        case "extra_forbidden":
            known = ", ".join(_known([*inside, *above]))
            return f"unknown key {last!r} in {where}; known are: {known}"
        case "missing":
            return f"{where} has no {last!r}; add it"
        case "string_pattern_mismatch":
            return (
                f"{'.'.join(above[:-1])}: {above[-1]!r} cannot name a file; use letters, digits,"
                " _, - and . (not first)"
            )
    said = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    reason = said.replace("should", "must")
    owner = benchmark_file or "config"
    return f"{owner}: {'.'.join(location)} {reason}, not {error['input']!r}"


def _known(path: list[str]) -> list[str]:
    match path:
        case ["benchmarks", _]:
            return [*BenchmarkConfig.model_fields, "use"]
        case ["benchmarks", _, *inner]:
            return list(_OF_BENCHMARK[".".join(inner)].model_fields)
        case [kind, _] if kind in _NAMED:
            return [*_NAMED[kind].model_fields, *(["sweep"] if kind == "runs" else [])]
        case ["decode"]:
            return list(DecodeConfig.model_fields)
        case ["main"]:
            return list(MainConfig.model_fields)
    return list(Config.model_fields)
