"""`adafuse step compare-runs` and `words-per-round` from files to files."""

import csv
from pathlib import Path

import yaml
from typer.testing import CliRunner

from adafuse.cli.steps import app

from .conftest import accuracy
from .test_words_per_round import row, trace

CONFIG = {
    "models": {"m": {"path": "a/m"}, "l": {"path": "a/l"}},
    "benchmarks": {
        "qa": {
            "source": {"file": "qa.jsonl"},
            "prompt": "{question}",
            "max_new_tokens": 4,
            "scorer": "squad",
        }
    },
    "runs": {
        "m": {"method": "single", "models": ["m"]},
        "both": {"method": "adafuse", "models": ["m", "l"]},
    },
}


def run(command: str, results: Path) -> list[dict[str, str]]:
    """The table that a step writes below `results`."""
    config = results / "config.yaml"
    config.write_text(yaml.safe_dump({**CONFIG, "results": str(results)}))
    done = CliRunner().invoke(app, [command, f"--config={config}"])
    assert done.exit_code == 0, done.output
    table = next(each for each in (results / "tables").rglob("*.csv") if each.name != "gain.csv")
    return list(csv.DictReader(table.open()))


def test_scores_become_the_comparison_table(store, tmp_path: Path) -> None:
    store(accuracy("m", [1, 0] * 5))
    store(accuracy("both", [1, 1] * 5))
    assert [
        (each["against"], each["role"], each["wins"]) for each in run("compare-runs", tmp_path)
    ] == [
        ("m", "member, others missing", "5"),
        ("m", "best baseline", "5"),
    ]
    (text,) = (tmp_path / "tables").rglob("comparison.md")
    assert "both is not compared with l:" in text.read_text()
    assert "No run is compared with each of its models." in text.read_text()
    (gain,) = (tmp_path / "tables").rglob("gain.md")
    assert "No ensemble has a run of method single" in gain.read_text()


def test_traces_become_the_table_of_words(tmp_path: Path) -> None:
    written = tmp_path / "traces" / "qa" / "both.parquet"
    written.parent.mkdir(parents=True)
    trace(tmp_path, row(1, 3)).rename(written)
    assert [each["rounds"] for each in run("words-per-round", tmp_path)] == ["1", "0", "1"]
