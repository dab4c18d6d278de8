"""The JSON schema of the configuration, for Snakemake's `validate` and for editors."""

import json
from typing import Any

from adafuse.config.config import SAFE_NAME, Config
from adafuse.options import CHANGE_WHEN

SCHEMA_FILE = "workflow/schemas/config.schema.json"


def schema() -> dict[str, Any]:
    """Return the JSON schema with all that is told of each field, defaults included."""
    found = Config.model_json_schema()
    for kind in ("models", "benchmarks", "runs", "experiments"):
        _close(found["properties"][kind])
    _allow_use(found["$defs"])
    _allow_sweep(found["$defs"]["RunConfig"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | found


def schema_text() -> str:
    """Return what `workflow/schemas/config.schema.json` must hold."""
    return json.dumps(_without_defaults(schema()), indent=2) + "\n"


def _close(named: dict[str, Any]) -> None:
    """Refuse names that do not fit the pattern, which pydantic leaves open."""
    assert list(named.get("patternProperties", {})) == [SAFE_NAME]
    named["additionalProperties"] = False


def _allow_use(sections: dict[str, Any]) -> None:
    """Let a benchmark be a file with changes; what is missing is found after both are joined."""
    benchmark = sections["BenchmarkConfig"]
    benchmark["properties"]["use"] = {
        "description": "file with the benchmark's other fields",
        CHANGE_WHEN: "several configurations share a benchmark",
        "minLength": 1,
        "title": "Use",
        "type": "string",
    }
    benchmark["anyOf"] = [{"required": ["use"]}, {"required": benchmark.pop("required")}]
    for partial in ("ShotsConfig", "SampleConfig"):
        del sections[partial]["required"]


def _allow_sweep(run: dict[str, Any]) -> None:
    """Let a run be several, one per value of an option."""
    values = {"type": "array", "minItems": 1}
    run["properties"]["sweep"] = {
        "description": "`{tau: [0.5, 0.7]}`: the run once per value, named NAME_0.5 and NAME_0.7; a"
        " list of runs may say NAME for all of them",
        CHANGE_WHEN: "a run is wanted for many values of an option",
        "additionalProperties": values,
        "minProperties": 1,
        "title": "Sweep",
        "type": "object",
    }


def _without_defaults(value: Any) -> Any:
    """Drop "default" keywords: Snakemake would write them into the configuration."""
    if isinstance(value, list):
        return [_without_defaults(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: _without_defaults(each) for key, each in value.items() if key != "default"}
