"""Decoded rows as one file in the repository, so that no result depends on a folder that is gone.

`python -m tools.docs.decoded_rows keep CONFIG` writes docs/results/rows.parquet from the traces and
journals of a results folder, of which CONFIG is the `config.json`: texts, why they ended, and what
they cost, without rounds. `... use FOLDER` puts the file among the traces of another results
folder: the workflow takes these rows from there, and decodes only the others.
"""

import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import typer

from adafuse.cli import errors
from adafuse.config.config import Config
from adafuse.config.reading import read_config
from adafuse.errors import UserError
from adafuse.storage.journal import digest_of, journal_path, journal_rows
from adafuse.storage.parquet import as_table, iterate_rows, read_arrow, read_metadata, write_arrow
from adafuse.storage.traces import ORIGIN, write_joined
from adafuse.workflow.decode import TRACE_FIELDS
from adafuse.workflow.layout import ResultsLayout
from adafuse.workflow.plan import Plan
from adafuse.workflow.stamps import write_stamp
from tools.docs.pages import ROOT

ROWS = ROOT / "docs/results/rows.parquet"

_KEY = ("benchmark", "run", "id")
_LEFT_OUT = ("rounds", "traceback", "seconds")  # large, or of no meaning on a busy machine
_COUNTS = [pa.field("rounds_fused", pa.int32()), pa.field("rounds_agreed", pa.int32())]
FIELDS = [field for field in TRACE_FIELDS if field.name not in _LEFT_OUT] + _COUNTS
"""Columns of the file: those of a trace, and for its rounds, how many there were and in how many
all models proposed what was committed."""


def keep(config: Config, out: Path = ROWS) -> Counter[str]:
    """Write all decoded rows of a results folder; return how many there are by benchmark.

    How a shard was decoded is kept, too, but for what names folders and machines. Rows that the
    file has already stay, if the configuration would decode the same: the folder may have taken
    them from there, without their rounds.
    """
    layout, tables, shards = ResultsLayout(config.results), [], dict[str, Any]()
    for benchmark, task in config.benchmarks.items():
        for run in config.decoded_runs:
            for shard in range(task.shards):
                file = layout.shard_trace(benchmark, run, shard)
                rows = sorted(_decoded(file), key=lambda row: str(row["id"]))
                names = {"benchmark": benchmark, "run": run, "shard": shard}
                tables.append(as_table(FIELDS, [_kept(row) | names for row in rows]))
                if file.is_file():
                    shards.setdefault(f"{benchmark}/{run}", []).append(_origin(file))
    table = pa.concat_tables(tables)
    if out.is_file():
        table = _with_new_ones(Plan(config), out, table)
        for cell, before in read_metadata(out)["shards_of"].items():
            known = shards.setdefault(cell, [])
            known += [origin for origin in before if origin not in known]
    out.parent.mkdir(parents=True, exist_ok=True)
    write_arrow(out, table.sort_by([(name, "ascending") for name in _KEY]), {"shards_of": shards})
    return Counter(table["benchmark"].to_pylist())


def _with_new_ones(plan: Plan, file: Path, table: pa.Table) -> pa.Table:
    """Return the rows of a file that a plan's jobs would decode alike, and a table's others."""
    before, cells = pq.read_table(file), product(plan.config.benchmarks, plan.config.decoded_runs)
    wanted: dict[tuple[str, ...], str] = {
        (*cell, name): digest
        for cell in cells
        for shard in plan.shards(cell[0])
        for name, digest in plan.row_digests(*cell, shard).items()
    }

    def keys(rows: pa.Table) -> list[tuple[str, ...]]:
        return list(zip(*(rows[name].to_pylist() for name in _KEY), strict=True))

    pairs = zip(keys(before), before["digest"].to_pylist(), strict=True)
    same = before.filter(pa.array([wanted.get(k) == digest for k, digest in pairs], pa.bool_()))
    present = {*keys(same)}
    new = table.filter(pa.array([key not in present for key in keys(table)], pa.bool_()))
    return pa.concat_tables([same, new])


def _decoded(trace: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a shard: of its trace, or of the journal of one that is not done."""
    if trace.is_file():
        yield from iterate_rows(trace)
    else:
        yield from journal_rows(journal_path(trace)).values()


def _kept(row: dict[str, Any]) -> dict[str, Any]:
    models, counts = len(row["tokens"]), dict[str, int]()
    if models > 1 and row["rounds"] is not None:
        chosen = [
            each["candidates"][each["selected"]]
            for each in row["rounds"]
            if each["selected"] is not None
        ]
        agreed = sum(len(candidate["proposers"]) == models for candidate in chosen)
        counts = {"rounds_fused": len(chosen), "rounds_agreed": agreed}
    return {name: row.get(name) for name in (f.name for f in FIELDS)} | counts


def _origin(trace: Path) -> dict[str, Any]:
    metadata = read_metadata(trace)
    known = {name: metadata[name] for name in (*ORIGIN, "shard", "started", "finished")}
    del known["place"]
    job = metadata["job"]
    ways = {name: job[name] for name in ("dtype", "batch_size", "engine", "devices")}
    return known | {"job": ways}


def use(folder: Path, rows: Path = ROWS) -> None:
    """Put the file among the traces of a results folder, stamped as one of the workflow's own."""
    target = folder / "traces/.elsewhere" / rows.name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(rows, target)
    write_stamp(target, "decoded elsewhere")


def restore(plan: Plan, rows: Path = ROWS) -> list[tuple[str, str]]:
    """Write the traces of the runs that have all rows of a benchmark; return which these are.

    Their rounds are empty, and took no time; `agreement` still says how many there were.

    Raises:
        UserError: a benchmark's prompts are not those that the rows were decoded from.
    """
    shards, found = read_metadata(rows)["shards_of"], []
    for benchmark, run in product(plan.config.benchmarks, plan.config.decoded_runs):
        chosen = (pc.field("benchmark") == benchmark) & (pc.field("run") == run)
        table = pq.read_table(rows, filters=chosen)
        if not len(table):
            continue
        places = {name: at for at, name in enumerate(table["id"].to_pylist())}
        wanted = {row.id: row.prompt_sha256 for row in plan.prepared(benchmark).rows}
        if not places.keys() >= wanted.keys():
            continue
        table = table.take([places[name] for name in wanted])
        if table["prompt_sha256"].to_pylist() != [*wanted.values()]:
            raise UserError(
                f"the prompts of {benchmark!r} are not those that were decoded; name its file"
            )
        columns = {field.name: pa.nulls(len(table), field.type) for field in TRACE_FIELDS}
        columns |= {name: table[name] for name in table.column_names}
        columns["seconds"] = pa.array([0.0] * len(table))
        about = {"digest": digest_of(*table["digest"].to_pylist()), "benchmark": benchmark}
        decoded, file = shards[f"{benchmark}/{run}"], plan.layout.trace(benchmark, run)
        write_joined(file, pa.table(columns), "shards", decoded, run=run, **about)
        found.append((benchmark, run))
    return found


def agreement(trace: Path) -> float | None:
    """Return the share of rounds in which all models proposed what was committed, in percent."""
    table = read_arrow(trace, [field.name for field in _COUNTS])
    fused, agreed = (pc.sum(column).as_py() or 0 for column in table.columns)
    return 100 * agreed / fused if fused else None


app = typer.Typer(no_args_is_help=True)


@app.command("keep")
def _keep(config: Path) -> None:
    """Write docs/results/rows.parquet from the results folder of a config.json."""
    for benchmark, number in keep(read_config(config)).items():
        typer.echo(f"{benchmark}: {number} rows")
    typer.echo(f"{ROWS}: {ROWS.stat().st_size / 1e6:.1f} MB")


@app.command("use")
def _use(folder: Path) -> None:
    """Put docs/results/rows.parquet among the traces of a results folder."""
    use(folder)


if __name__ == "__main__":
    sys.exit(errors.run(app, "python -m tools.docs.decoded_rows"))
