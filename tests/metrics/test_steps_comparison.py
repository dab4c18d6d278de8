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


def run(*arguments: object) -> None:
    done = CliRunner().invoke(app, [str(each) for each in arguments])
    assert done.exit_code == 0, done.output


def test_scores_become_the_comparison_table(store, tmp_path: Path) -> None:
    config, table, text = (tmp_path / name for name in ("config.yaml", "c.csv", "c.md"))
    config.write_text(yaml.safe_dump(CONFIG))
    scores = [store(accuracy("m", [1, 0] * 5)), store(accuracy("both", [1, 1] * 5))]
    run("compare-runs", *scores, "--config", config, "--csv", table, "--markdown", text)
    rows = list(csv.DictReader(table.open()))
    assert [(each["against"], each["role"], each["wins"]) for each in rows] == [
        ("m", "member", "5"),
        ("m", "best baseline", "5"),
    ]
    assert "both is not compared with l:" in text.read_text()


def test_traces_become_the_table_of_words(tmp_path: Path) -> None:
    table = tmp_path / "words.csv"
    run("words-per-round", trace(tmp_path, row(1, 3)), "--csv", table)
    assert [each["rounds"] for each in csv.DictReader(table.open())] == ["1", "0", "1"]
    run("words-per-round", "--csv", table)  # a configuration without ensembles
    assert table.read_text().count("\n") == 1
