"""Snakemake on models of two standing servers."""

import json
from pathlib import Path
from typing import Any

import pytest

from adafuse.storage.parquet import read_metadata, read_rows
from tests.support.stand_in import StandIn, standing

from .conftest import Workplace, unfinished

SHARDS = 4


def configured(folder: Path, python: str, **servers: StandIn) -> Workplace:
    """Two runs on one benchmark: eight decode jobs."""
    folder.mkdir()
    place = unfinished(folder, python)

    def change(config: dict[str, Any]) -> None:
        for name, server in servers.items():
            config["models"][name]["server"] = server.url
        del config["benchmarks"]["mt"]
        config["benchmarks"]["qa"]["shards"] = SHARDS

    place.configure(change)
    return place


def texts(place: Workplace, run: str) -> dict[str, str]:
    return {
        row["id"]: row["text"]
        for row in read_rows(place.folder / f"results/traces/qa/{run}.parquet")
    }


@pytest.mark.soak
def test_eight_jobs_at_once_on_one_pair_of_servers_give_the_table_of_models_that_are_loaded(
    distributions: Any, tmp_path: Path, forked_python: str
) -> None:
    here = configured(tmp_path / "here", forked_python)
    here.run()
    with standing(distributions[0]) as mistral, standing(distributions[1]) as llama:
        there = configured(tmp_path / "there", forked_python, mistral=mistral, llama=llama)
        for name in ("mistral", "llama"):
            (there.folder / "models" / name / "model.safetensors").unlink()
        done = there.snakemake("--cores=8")
        assert done.returncode == 0, done.stdout + done.stderr
    tables = [place.folder / "results/tables/main.csv" for place in (here, there)]
    assert tables[0].read_text() == tables[1].read_text()
    for run in ("llama", "adafuse"):
        assert texts(here, run) == texts(there, run)
        shards = read_metadata(there.folder / f"results/traces/qa/{run}.parquet")["shards"]
        assert [len(shard["served"]) for shard in shards] == [1 if run == "llama" else 2] * SHARDS
    assert there.plan().jobs.total() == 0, "and with the servers gone, nothing is left to do"
    there.configure(lambda config: config["models"]["llama"].update(server="http://elsewhere:1"))
    assert not there.plan().decodes
    page = (there.folder / "results/report/index.html").read_text()
    assert str(mistral.port) not in page and json.dumps(mistral.url) not in page
