"""Every decoded run of config/toy.yaml on rows of each of its benchmarks, through Python.

It says of the runs, the sweeps and the baselines what the demo says of its ten runs.
"""

from collections.abc import Iterator

from adafuse.benchmarks.shards import PreparedRow
from adafuse.config.config import Config
from adafuse.config.reading import read_config
from adafuse.methods.selections import SELECTIONS
from adafuse.workflow.benchmarks import prepare_benchmark
from tests.guard.adapter import of_result, options_of
from tests.guard.fingerprint import Decoded
from tests.guard.quick import loaded
from tests.workflow.conftest import ROOT

ROWS = 2
"""Of each benchmark, from its beginning and its middle."""


def decoded() -> Iterator[tuple[str, list[tuple[str, Decoded]]]]:
    """BENCHMARK/RUN with what the run makes of the rows."""
    config = read_config(ROOT / "config/toy.yaml")
    asked = {name: _rows(config, name) for name in config.benchmarks}
    for name, run in config.runs.items():
        if run.method in SELECTIONS:
            continue
        ensemble = loaded(tuple(run.models), run.weights)
        for benchmark, rows in asked.items():
            settings = config.benchmarks[benchmark]
            options = {
                "stop": settings.stop,
                "max_new_tokens": settings.max_new_tokens,
                "questions": [row.question for row in rows],
                **run.options,
            }
            prompts = [row.prompt for row in rows]
            results = dict(ensemble.stream(prompts, method=run.method, **options_of(options)))
            ids = [row.id for row in rows]
            yield f"{benchmark}/{name}", [(ids[n], of_result(results[n])) for n in range(len(rows))]


def _rows(config: Config, benchmark: str) -> list[PreparedRow]:
    rows = prepare_benchmark(config, benchmark).rows
    return rows[:: len(rows) // ROWS][:ROWS]
