"""What the shell suggests."""

from pathlib import Path

import pytest

from adafuse.storage.parquet import write_rows
from adafuse.storage.traces import RESULT_FIELDS
from tests.cli.terminal import adafuse
from tests.conftest import TOY_MODELS


def suggested(line, cwd=TOY_MODELS):
    """What bash would suggest behind a command line."""
    more = {
        "_ADAFUSE_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
    }
    done = adafuse(cwd=cwd, **more)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("adafuse gen", ["generate"]),
        ("adafuse generate --method uni", ["unite"]),
        ("adafuse methods uni", ["unite"]),
        ("adafuse generate --method unite --option to", ["top_k="]),
        ("adafuse generate --option ta", ["tau="]),
        ("adafuse generate --model mis", ["mistral"]),
        ("adafuse doctor --model mis", ["mistral"]),
        ("adafuse generate --dtype bf", ["bfloat16"]),
        ("adafuse generate --device bal", ["balanced"]),
        ("adafuse generate --fusion mix", ["mixture"]),
        ("adafuse score --benchmark gsm", ["gsm8k"]),
        ("adafuse score --protocol pub", ["published"]),
        ("adafuse generate --max-w", ["--max-words"]),
        ("adafuse show nowhere.parquet --id a", []),
    ],
)
def test_values_are_suggested(line, words):
    assert suggested(line) == words


def test_examples_of_the_trace_are_suggested(tmp_path):
    import pyarrow as pa

    row = dict.fromkeys((field.name for field in RESULT_FIELDS), None)
    rows = [{"id": name, **row} for name in ("one", "other", "two")]
    write_rows(tmp_path / "t.parquet", [pa.field("id", pa.string()), *RESULT_FIELDS], rows, {})
    assert suggested("adafuse show t.parquet --id o", cwd=tmp_path) == ["one", "other"]


def test_folders_that_are_no_models_are_gone_into():
    assert suggested("adafuse generate --model mod", cwd=Path(TOY_MODELS).parent) == ["models/"]


def test_completion_can_be_installed():
    more = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = adafuse("--show-completion", "bash", **more)
    assert "_ADAFUSE_COMPLETE=complete_bash" in done.stdout, done.stderr
