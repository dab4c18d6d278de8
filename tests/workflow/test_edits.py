"""Whatever is edited, the tables are those of a fresh folder: Snakemake against all steps anew."""

import csv
import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from adafuse.cli.main import app
from adafuse.errors import UserError
from adafuse.workflow.plan import Plan
from adafuse.workflow.steps import Job

ROOT = Path(__file__).parents[2]
Tables = dict[str, list[dict[str, str]]]


@dataclass
class World:
    """A folder with a configuration, rows, models and results; `said` is what was done to it."""

    folder: Path
    python: str
    random: random.Random
    said: list[str] = field(default_factory=list)

    @classmethod
    def made(cls, folder: Path, python: str, random: random.Random) -> "World":
        for name in ("mistral", "llama"):
            shutil.copytree(ROOT / "adafuse/toy/models" / name, folder / "models" / name)
        for name, source in (("qa", "toy_qa"), ("mt", "toy_en_de")):
            lines = (ROOT / f"adafuse/toy/benchmarks/{source}.jsonl").read_text().splitlines()
            (folder / f"{name}.jsonl").write_text("\n".join(lines[:6]) + "\n")
        world = cls(folder, python, random)
        world.write_config(configuration())
        return world

    def config(self) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load((self.folder / "config.yaml").read_text())
        return found

    def write_config(self, config: dict[str, Any]) -> None:
        (self.folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))

    def rows(self, benchmark: str) -> list[dict[str, Any]]:
        lines = (self.folder / f"{benchmark}.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def write_rows(self, benchmark: str, rows: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (self.folder / f"{benchmark}.jsonl").write_text(text)

    def one(self, *patterns: str) -> Path | None:
        """Choose a file of the results."""
        found = [path for pattern in patterns for path in self.folder.glob(f"results/{pattern}")]
        return self.random.choice(sorted(found)) if found else None

    def edit(self) -> None:
        """Make a random edit, another one if that is refused."""
        files = [self.folder / name for name in ("config.yaml", "qa.jsonl", "mt.jsonl")]
        before = [file.read_text() for file in files]
        change = self.random.choice(EDITS)
        change(self)
        try:
            with chdir(self.folder):
                Plan.of(self.config())
            self.said.append(change.__name__)
        except UserError:  # such as fewer rows than shards
            for file, text in zip(files, before, strict=True):
                file.write_text(text)
            self.edit()

    def snakemake(self) -> None:
        done = subprocess.run(
            [self.python, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"),
             "--cores", "2", "--configfile", "config.yaml"],
            cwd=self.folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"after {self.said}: {done.stdout}{done.stderr}"

    def fresh(self, folder: Path) -> Tables:
        """Return the tables of all steps anew, in this process, without Snakemake."""
        folder.mkdir()
        for name in ("models", "qa.jsonl", "mt.jsonl", "config.yaml"):
            (folder / name).symlink_to(self.folder / name)
        with chdir(folder):
            _run_all_steps(Plan.of(self.config()))
        return tables(folder)


def configuration() -> dict[str, Any]:
    task = {"prompt": "Question: {question}\nAnswer:", "stop": ["\n"], "max_new_tokens": 6}
    return {
        "models": {name: {"path": f"models/{name}"} for name in ("mistral", "llama")},
        "benchmarks": {
            "qa": {"source": {"file": "qa.jsonl"}, **task, "scorer": "squad", "shards": 2},
            "mt": {"source": {"file": "mt.jsonl"}, **task, "scorer": "translation_13a"},
        },
        "runs": {
            "llama": {"method": "single", "models": ["llama"]},
            "mistral": {"method": "single", "models": ["mistral"]},
            "adafuse": {"method": "adafuse", "models": ["mistral", "llama"]},
            "best": {"method": "best_of", "models": ["mistral", "llama"]},
        },
        "targets": ["tables"],
        "decode": {"batch_size": 4, "device": "cpu", "gpu": 0},
    }


def tables(folder: Path) -> Tables:
    found = {}
    for path in sorted(folder.glob("results/tables/*.csv")):
        with path.open() as file:
            found[path.name] = list(csv.DictReader(file))
    return found


def _run_all_steps(plan: Plan) -> None:
    """Run what the table of steps says, each job after those that it reads."""
    plan.store_config()
    done: set[Job] = set()

    def run(job: Job) -> None:
        if job in done:
            return
        for each in plan.reads(job):
            run(each)
        command = CliRunner().invoke(app, plan.command(job)[1:])
        assert command.exit_code == 0, f"{job}: {command.output} {command.exception}"
        done.add(job)

    for job in plan.targets:
        run(job)


Edit = Callable[[World], None]


def values(field: str, *choices: object) -> Edit:
    """Return the edit that gives a field, named by its path in the configuration, another value."""

    def edit(world: World) -> None:
        config = world.config()
        *path, last = field.split(".")
        section = config
        for key in path:
            section = section[key]
        section[last] = world.random.choice(choices)
        world.write_config(config)

    edit.__name__ = field
    return edit


def an_option(world: World) -> None:
    config = world.config()
    run = world.random.choice([r for r in config["runs"].values() if r["method"] == "adafuse"])
    run["options"] = {"tau": world.random.choice([0.1, 0.5, 0.7, 0.9])}
    world.write_config(config)


def a_note(world: World) -> None:
    world.write_config(world.config() | {"note": f"note {world.random.random()}"})


def the_order(world: World) -> None:
    config = world.config()
    section = world.random.choice(["benchmarks", "runs"])
    names = list(config[section])
    world.random.shuffle(names)
    world.write_config(config | {section: {name: config[section][name] for name in names}})


def the_order_of_models(world: World) -> None:
    config = world.config()
    run = world.random.choice([r for r in config["runs"].values() if len(r["models"]) > 1])
    run["models"].reverse()
    world.write_config(config)


def a_name(world: World) -> None:
    config = world.config()
    runs = config["runs"]
    old = world.random.choice([name for name in runs if runs[name]["method"] == "adafuse"])
    new = f"fused_{world.random.randrange(100)}"
    config["runs"] = {new if name == old else name: run for name, run in runs.items()}
    world.write_config(config)


def a_run(world: World) -> None:
    config = world.config()
    run = {"method": "fixed_length", "models": ["mistral", "llama"], "options": {"words": 1}}
    if config["runs"].pop("fixed", None) is None:
        config["runs"]["fixed"] = run
    world.write_config(config)


def a_question(world: World) -> None:
    rows = world.rows("qa")
    world.random.choice(rows)["question"] = f"Who is number {world.random.randrange(100)}?"
    world.write_rows("qa", rows)


def an_answer(world: World) -> None:
    rows = world.rows("qa")
    world.random.choice(rows)["answer"] = [f"another {world.random.randrange(9)}", "Paris"]
    world.write_rows("qa", rows)


def rows(world: World) -> None:
    rows = world.rows("mt")
    if len(rows) > 4 and world.random.random() < 0.5:
        rows.pop(world.random.randrange(len(rows)))
    else:
        rows.insert(0, rows[0] | {"id": f"new-{world.random.randrange(10**6)}"})
    world.write_rows("mt", rows)


def the_order_of_rows(world: World) -> None:
    rows = world.rows("qa")
    world.random.shuffle(rows)
    world.write_rows("qa", rows)


def weights(world: World) -> None:
    """Change a weight of a model a little: it is a float32, and this is one of its lower bits."""
    path = world.folder / "models" / world.random.choice(["mistral", "llama"]) / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[len(content) // 2 // 4 * 4 + 1] ^= 1
    path.write_bytes(content)


def snakemakes_records(world: World) -> None:
    shutil.rmtree(world.folder / ".snakemake", ignore_errors=True)


def a_lost_file(world: World) -> None:
    path = world.one("traces/*/*", "scores/*/*/*", "tables/*", "benchmarks/*/*", "config.json")
    if path is not None and path.is_file():
        path.unlink()


def a_changed_byte(world: World) -> None:
    path = world.one("traces/*/*.parquet", "scores/*/*/*", "tables/*.csv", "benchmarks/*/*.jsonl")
    if path is not None:
        content = bytearray(path.read_bytes())
        content[world.random.randrange(len(content))] ^= 1
        path.write_bytes(content)


def a_file_of_another(world: World) -> None:
    pattern = world.random.choice(["traces/*/*.parquet", "scores/strict/*/*.json"])
    source, target = world.one(pattern), world.one(pattern)
    if source is not None and target is not None and source != target:
        shutil.copy2(source, target)


def a_touch(world: World) -> None:
    for path in world.folder.rglob("*"):
        if ".snakemake" not in path.parts and world.random.random() < 0.3:
            path.touch()


EDITS: list[Edit] = [
    values("benchmarks.qa.limit", 3, 4, 6),
    values("benchmarks.qa.shards", 1, 2, 3),
    values("benchmarks.qa.scorer", "squad", "nq", "triviaqa"),
    values("benchmarks.mt.max_new_tokens", 5, 6, 7),
    values("protocols", ["strict"], ["strict", "published"]),
    an_option, a_note, the_order, the_order_of_models, a_name, a_run, a_question, an_answer, rows,
    the_order_of_rows, weights, snakemakes_records, a_lost_file, a_changed_byte,
    a_file_of_another, a_touch,
]  # fmt: skip


def check(folder: Path, python: str, random: random.Random, times: int, edits: int) -> None:
    """Make some edits and run Snakemake, that many times."""
    world = World.made(folder / "world", python, random)
    world.snakemake()
    for number in range(times):
        for _ in range(edits):
            world.edit()
        world.snakemake()
        assert tables(world.folder) == world.fresh(folder / f"fresh-{number}"), world.said


# What fails is not made smaller, which would take hours: `said` has the edits.
ONCE = settings(deadline=None, derandomize=True, database=None, phases=[Phase.generate])


@pytest.mark.soak
@given(random=st.randoms(use_true_random=True))
@settings(ONCE, max_examples=2)
def test_after_any_edits_the_tables_are_those_of_a_fresh_folder(
    tmp_path_factory: pytest.TempPathFactory, forked_python: str, random: random.Random
) -> None:
    check(tmp_path_factory.mktemp("edits"), forked_python, random, times=2, edits=4)
