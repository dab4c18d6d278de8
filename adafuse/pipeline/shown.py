"""What a report shows of a configuration: all but where jobs run and what they ask for."""

from typing import Any

from adafuse.pipeline.config import Config

_PLACES: Any = {
    "results": True,
    "targets": True,
    "cluster": True,
    "decode": {"device", "gpu", "max_error_share"},
    "models": {"__all__": {"device"}},
    "runs": {"__all__": {"cluster"}},
}


def shown(config: Config) -> dict[str, Any]:
    """Return the configuration as JSON-ready values, without the places of jobs."""
    return config.model_dump(mode="json", exclude=_PLACES, exclude_defaults=True)
