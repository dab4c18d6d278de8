"""The page on traces names what is in a trace, no more and no less."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from adafuse.cli.main import app
from adafuse.models.spec import WHERE_SET
from adafuse.storage.parquet import read_metadata
from tests.conftest import toy_path
from tests.docs.scratch import Scratch
from tools.docs.tables import COLUMNS, GENERATED, JOB, MERGED, SHARD, columns_table


def paths(schema: object, path: str = "") -> set[str]:
    """All leaves of an Arrow schema, as the page writes them."""
    found = set()
    for field in schema:
        found |= leaves(field.type, f"{path}{field.name}")
    return found


def leaves(kind: object, path: str) -> set[str]:
    if pa.types.is_list(kind):
        return {f"{path}[]"} | (leaves(kind.value_type, f"{path}[]") - {f"{path}[]"})
    return paths(kind, f"{path}.") if pa.types.is_struct(kind) else {path}


def test_every_column_is_told_once() -> None:
    rows = [line.split("`")[1] for line in columns_table().splitlines()[2:]]
    assert rows == list(COLUMNS)


@pytest.mark.soak
def test_the_columns_and_metadata_of_the_workflow_are_the_told_ones(results: Scratch) -> None:
    folder = results.folder / "results/traces/toy_qa"
    merged, shard = folder / "adafuse.parquet", folder / "adafuse/0.parquet"
    assert paths(pq.read_schema(merged)) == COLUMNS.keys()
    assert read_metadata(merged).keys() == MERGED.keys()
    assert read_metadata(shard).keys() == SHARD.keys() - {"served"}
    where_set = {"timed", "fitted_on", "plugins", *WHERE_SET}
    assert read_metadata(shard)["job"].keys() == JOB.keys() - where_set


def test_the_columns_and_metadata_of_generate_are_the_told_ones(tmp_path: Path) -> None:
    prompts, out = tmp_path / "p.jsonl", tmp_path / "out.parquet"
    prompts.write_text(json.dumps({"id": "X", "prompt": "Question: who\nAnswer:"}) + "\n")
    files = ["--prompts", str(prompts), "--out", str(out), "--max-new-tokens", "4"]
    model = ["--model", toy_path("llama"), "--method", "single"]
    done = CliRunner().invoke(app, ["generate", *model, *files])
    assert done.exit_code == 0, done.output
    missing = {"benchmark", "run", "shard", "prompt_sha256", "digest"}
    assert paths(pq.read_schema(out)) == (COLUMNS.keys() - missing) | {"prompt"}
    assert read_metadata(out).keys() == GENERATED.keys()
