"""A configuration of the toy world's form that needs no models to run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save


def weight_file(name: str) -> bytes:
    """Return a safetensors file; another name makes it another one."""
    return save({"weight": np.zeros(9, "float32")}, {"name": name})


@pytest.fixture
def values(tmp_path: Path) -> dict[str, Any]:
    """A configuration with all its files."""
    for name in ("left", "right"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "tokenizer.json").write_text("{}")
        (tmp_path / name / "model.safetensors").write_bytes(weight_file(name))
    rows = [{"id": f"r{n}", "question": f"q{n}?", "answer": f"a{n}"} for n in range(12)]
    (tmp_path / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "results": str(tmp_path / "results"),
        "models": {
            "left": {"path": str(tmp_path / "left")},
            "right": {"path": str(tmp_path / "right")},
            "hub": {"path": "org/name", "revision": "abc"},
        },
        "benchmarks": {
            "qa": {
                "source": {"file": str(tmp_path / "qa.jsonl")},
                "prompt": "Question: {question}\nAnswer:",
                "stop": ["\n"],
                "max_new_tokens": 8,
                "scorer": "squad",
                "shards": 2,
            }
        },
        "runs": {
            "left": {"method": "single", "models": ["left"]},
            "both": {
                "method": "adafuse",
                "models": ["left", "right"],
                "options": {"tau": 0.7},
            },
            "far": {"method": "single", "models": ["hub"]},
        },
        "decode": {"device": "cpu", "gpu": 0},
    }
