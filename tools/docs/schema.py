"""The JSON schema of the configuration, for Snakemake's `validate` and for editors."""

import json
from typing import Any

from adafuse.config.config import SAFE_NAME, Config

SCHEMA_FILE = "workflow/schemas/config.schema.json"


def schema() -> dict[str, Any]:
    """Return the JSON schema with all that is said of each field, defaults included."""
    found = Config.model_json_schema()
    for kind in ("models", "benchmarks", "runs", "experiments"):
        named = found["properties"][kind]
        assert list(named["patternProperties"]) == [SAFE_NAME]
        named["additionalProperties"] = False  # which pydantic leaves open
    _allow_use(found["$defs"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | found


def schema_text() -> str:
    """Return what `workflow/schemas/config.schema.json` must hold."""
    # Without "default" keywords, which Snakemake would write into the configuration.
    plain = json.loads(
        json.dumps(schema()),
        object_hook=lambda part: {key: part[key] for key in part if key != "default"},
    )
    return json.dumps(plain, indent=2) + "\n"


def _allow_use(sections: dict[str, Any]) -> None:
    """Let a benchmark be a file with changes; what is missing is found after both are joined."""
    benchmark = sections["BenchmarkConfig"]
    benchmark["anyOf"] = [{"required": ["use"]}, {"required": benchmark.pop("required")}]
    for partial in ("ShotsConfig", "SampleConfig"):
        del sections[partial]["required"]
