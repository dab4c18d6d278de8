"""Fixtures shared by all tests; the toy models of the package are the models under test."""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test needs the network
os.environ["OMP_NUM_THREADS"] = "1"  # torch reads it when it is imported, here and in processes
# Otherwise each of hundreds of processes compiles the package, and each worker all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import hypothesis
import pytest

import adafuse.toy

if TYPE_CHECKING:  # what imports torch takes seconds, and xdist's own process runs no tests
    from transformers import PreTrainedTokenizerBase

    from adafuse.ensemble import Ensemble

sys.dont_write_bytecode = False
DEVICE = os.environ.get("ADAFUSE_TEST_DEVICE", "cpu")
"""Where the models of the tests of engines and methods lie."""
TOY_MODELS = Path(adafuse.toy.__file__).parent / "models"
SHARED = Path(__file__).parents[2] / "shared" / "data"
REAL_TOKENIZERS = (
    "llama-3.1-instruct",
    "mistral-7b-instruct-v0.3",
    "mistral-7b-instruct-v0.3-spm",
    "qwen2.5-qwen3",
    "gpt2",
)

SHARED_FIXTURES = ("demo", "finished", "results", "browser")
"""Session fixtures so expensive that all tests that use one run on the same worker."""

SLURM = "tests/workflow/test_slurm"
"""How the files begin that start a Slurm cluster, of which a machine has room for one."""

LONGEST = (SLURM, "tests/serve/test_load", "demo", "finished", "results", "tests/workflow/",
           "tests/guard/", "browser", "tests/methods/test_engines", "tests/engine/")  # fmt: skip
"""How the groups begin that take longest, the longest first."""

# A busy machine may pause an example for longer than any deadline.
hypothesis.settings.register_profile("patient", hypothesis.settings(), deadline=None)
hypothesis.settings.load_profile("patient")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what is to run in the background so, and its processes would not see Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Take away the log that `adafuse step` sets up, on a stream that ends with its test."""
    package = logging.getLogger("adafuse")
    level = package.level
    yield
    package.setLevel(level)
    for handler in logging.getLogger().handlers[:]:
        if type(handler) is logging.StreamHandler:
            logging.getLogger().removeHandler(handler)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Say what `--dist loadgroup` keeps together: users of a shared fixture, of Slurm, or a file.

    pytest-xdist reads the marks before any other hook sees all items.
    """
    if not item.get_closest_marker("xdist_group"):
        item.add_marker(pytest.mark.xdist_group(_group(item)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest groups, so that no worker ends long after the others."""
    items.sort(key=lambda item: _rank(item.get_closest_marker("xdist_group").args[0]))


def _group(item: pytest.Item) -> str:
    used = [name for name in SHARED_FIXTURES if name in item.fixturenames]
    file = item.nodeid.split("::")[0]
    if file.startswith(SLURM):
        return SLURM
    return used[0] if used else file


def _rank(group: str) -> int:
    return [*map(group.startswith, LONGEST), True].index(True)


def toy_path(name: str) -> str:
    """The folder of a toy model."""
    return str(TOY_MODELS / name)


def ensemble_of(*paths: str | Path) -> "Ensemble":
    """Models in float32 on the device under test.

    How each is run is found out at once: a test may break a model for a while, and others share it.
    """
    from adafuse.engine.choice import way_of
    from adafuse.ensemble import Ensemble

    ensemble = Ensemble.from_pretrained(paths, device=DEVICE, dtype="float32")
    for model in ensemble.models:
        way_of(model)
    return ensemble


@pytest.fixture(scope="session")
def pair() -> "Ensemble":
    """The default pair of the toy world."""
    return ensemble_of(toy_path("mistral"), toy_path("llama"))


@pytest.fixture(scope="session")
def distributions(pair):
    """What stand-in servers of the default pair say."""
    from tests.support.stand_in import Distributions

    return [Distributions(model) for model in pair.models]


@pytest.fixture
def no_pauses():
    """Requests to servers are sent again at once."""
    from tests.support.stand_in import impatient

    with impatient():
        yield


@pytest.fixture(scope="session")
def quartet() -> "Ensemble":
    """All four toy models."""
    return ensemble_of(*map(toy_path, ("mistral", "llama", "qwen3", "internlm3")))


@pytest.fixture(scope="session")
def random_pair(tmp_path_factory) -> "Ensemble":
    """Two models of one layer of random weights over toy tokenizers: they disagree everywhere."""
    from tests.support.tiny import random_model

    folder = tmp_path_factory.mktemp("random")
    paths = [
        random_model(toy_path(name), folder / name, seed=seed, num_hidden_layers=1)
        for seed, name in enumerate(("mistral", "llama"))
    ]
    return ensemble_of(*paths)


@pytest.fixture(scope="session", params=REAL_TOKENIZERS)
def real_tokenizer(request) -> Path:
    """The folder of a real model's tokenizer, where the shared data are at hand."""
    folder = SHARED / "tokenizers" / request.param
    if not folder.is_dir():
        pytest.skip(f"the real tokenizers are not at {folder}")
    return folder


@cache
def loaded(folder: Path) -> "PreTrainedTokenizerBase":
    """The tokenizer of a folder, which no test may change; large ones take a second to load."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="session")
def benchmark_texts() -> list[str]:
    """Texts of the six real benchmarks, where the shared data are at hand."""
    import json

    folder = SHARED / "benchmarks"
    if not folder.is_dir():
        pytest.skip(f"the real benchmarks are not at {folder}")
    texts = []
    for path in sorted(p for p in folder.glob("*/*.jsonl") if p.parent.name != "reference"):
        lines = path.read_text(encoding="utf-8").split("\n")
        for line in filter(None, lines[:400:20]):
            row = json.loads(line)
            answer = row["answer"]
            texts.append(row["question"])
            texts.extend(answer if isinstance(answer, list) else [answer])
    return texts


@pytest.fixture(scope="session")
def forked_python(tmp_path_factory) -> Iterator[str]:
    """A `python` whose processes are forked, so that they need not import torch or Snakemake."""
    from tests.support.forked import commands

    with commands(tmp_path_factory.mktemp("commands")) as python:
        yield str(python)


@pytest.fixture(scope="session")
def browser():
    """A real browser; a process can have only one at a time."""
    from tests.support.browser import started

    with started() as browser:
        yield browser
