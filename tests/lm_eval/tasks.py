"""The tasks that docs/lm-eval.md runs, with data files that are found from anywhere."""

from pathlib import Path
from typing import Any

import yaml

from tests.conftest import toy_path

ROOT = Path(__file__).parents[2]
QA = ROOT / "docs/lm-eval/toy_qa.yaml"
CHOICE = ROOT / "docs/lm-eval/toy_choice.yaml"
MODELS = f"{toy_path('mistral')}+{toy_path('llama')}"


def task(path: Path, **changes: Any) -> dict[str, Any]:
    """The configuration of a task, some of it changed."""
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    files = config["dataset_kwargs"]["data_files"]
    config["dataset_kwargs"] = {"data_files": {k: str(ROOT / v) for k, v in files.items()}}
    return {**config, **changes}


def texts(samples):
    """What the harness was answered, in the order of the documents."""
    return [sample["resps"][0][0] for sample in samples]
