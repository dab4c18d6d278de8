"""A method of somebody else's package: the one that docs/extending.md shows."""

import dataclasses
import importlib
import importlib.util
import inspect
import math
import os
import re
import subprocess
import sys
from operator import mul
from pathlib import Path

import pytest

from adafuse.decoding.method import Method
from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.methods import METHODS
from adafuse.methods.registry import register
from adafuse.options import MethodOptions
from tests.conftest import toy_path
from tests.support.next_token import logprobs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
PROMPTS = ["Question: who founded Orrin?\nAnswer:", "Question: 3 plus 4\n"]
CODE, TOKENS, BYTES, SUREST, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def package(tmp_path):
    """A folder on the path that holds the package as pip would install it."""
    (tmp_path / "elsewhere.py").write_text(CODE)
    info = tmp_path / "elsewhere-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[adafuse.methods]\nminimax = elsewhere:Minimax\n")
    return tmp_path


@pytest.fixture
def minimax(package):
    """The class, in the registry of this process."""
    spec = importlib.util.spec_from_file_location("elsewhere", package / "elsewhere.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    register(module.Minimax)
    yield module.Minimax
    del METHODS["minimax"]


@pytest.mark.soak
def test_an_installed_package_adds_a_method_to_the_command_line(package):
    (package / "in.jsonl").write_text('{"id": "X", "prompt": "Question: who\\nAnswer:"}\n')
    models = ["--model", toy_path("mistral"), "--model", toy_path("llama"), "--device", "cpu"]
    files = ["--prompts", "in.jsonl", "--out", "out.parquet", "--max-new-tokens", "6"]
    chosen = ["--method", "minimax", "--option", "max_word_tokens=4"]
    code = "from adafuse.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "generate", *models, *files, *chosen],
        cwd=package,
        env={**os.environ, "PYTHONPATH": f"{package}:{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    from adafuse.storage.parquet import read_metadata, read_rows

    assert read_metadata(package / "out.parquet")["settings"]["method"] == "minimax"
    assert read_rows(package / "out.parquet")[0]["rounds"]


def test_a_registered_method_decodes_and_both_engines_agree(minimax, pair):
    settings = {"method": "minimax", "max_new_tokens": 8}
    tree = pair.generate(PROMPTS, **settings)
    plain = pair.generate(PROMPTS, engine="reference", batch_size=1, **settings)
    assert [r.text for r in tree] == [r.text for r in plain]
    for result in tree:
        for taken in result.rounds:
            fused = [max(candidate.nll) for candidate in taken.candidates]
            assert fused[taken.selected] == min(fused)


@pytest.fixture
def agreed_token(monkeypatch):
    """The token-level method of the page, in the registry of this process."""
    monkeypatch.chdir(ROOT)
    try:
        exec(TOKENS, {"__name__": "__main__"})
        yield METHODS["agreed_token"]
    finally:
        METHODS.pop("agreed_token", None)


def test_the_token_level_method_commits_the_likeliest_proposal_and_both_engines_agree(
    agreed_token, pair
):
    settings = {"method": "agreed_token", "max_new_tokens": 8}
    tree = pair.generate(PROMPTS, **settings)
    plain = pair.generate(PROMPTS, engine="reference", batch_size=1, **settings)
    assert [r.text for r in tree] == [r.text for r in plain]
    for result in tree:
        for taken in result.rounds:
            means = [sum(math.exp(-nll) for nll in each.nll) / 2 for each in taken.candidates]
            chosen = taken.candidates[taken.selected].fused
            assert math.exp(-chosen) == pytest.approx(max(means), abs=1e-9)


def test_the_byte_level_method_writes_the_bytes_of_bytewise_where_one_model_decides(pair):
    try:
        exec(BYTES, {"__name__": "__main__"})
        settings = {"stop": "\n", "max_new_tokens": 8}
        with pytest.raises(UserError, match="surest_byte reads whole distributions"):
            METHODS["surest_byte"](MethodOptions()).check_served(["a"])
        alone = Ensemble(pair.models[:1], (1.0,))
        texts = [alone.generate(PROMPTS, method=m, **settings) for m in ("surest_byte", "bytewise")]
    finally:
        METHODS.pop("surest_byte", None)
    assert texts[0] and [r.text for r in texts[0]] == [r.text for r in texts[1]]


NAMED = re.findall(r"^\| `([\w.]+)(\(.*\))?` \| `([\w.]+)` \|", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("name", "parameters", "module"), NAMED, ids=[n for n, *_ in NAMED])
def test_the_page_names_what_there_is_with_its_parameters(name, parameters, module):
    first, *rest = name.split(".")
    found = getattr(importlib.import_module(f"adafuse.{module}"), first)
    for part in rest:
        found = getattr(found, part)
    if parameters:
        shown = [word.partition("=")[0].strip(" *") for word in parameters.strip("()").split(",")]
        assert shown == [*inspect.signature(found).parameters]


def test_the_page_names_fields_that_there_are():
    assert len(NAMED) >= 14
    rows = dict(
        re.findall(r"^\| `(Example|Span|Candidate|NextToken)` \|(.*)\|$", PAGE, re.MULTILINE)
    )
    for name, text in rows.items():
        module = next(module for named, _, module in NAMED if named == name)
        found = getattr(importlib.import_module(f"adafuse.{module}"), name)
        known = {each.name for each in dataclasses.fields(found)} | set(dir(found))
        words = re.findall(r"`(\w+)(?:\(k\))?`", text.partition("|")[2])
        assert set(words) <= known, name


@pytest.fixture
def surest(monkeypatch):
    """The second method of the page, in the registry of this process."""
    monkeypatch.chdir(ROOT)
    try:
        exec(SUREST, {"__name__": "__main__"})
        yield METHODS["surest"]
    finally:
        METHODS.pop("surest", None)


@pytest.mark.parametrize("weighting", ["given", "prompt"])
def test_what_a_method_does_before_it_decodes_weights_all_its_rounds(surest, pair, weighting):
    settings = {"max_new_tokens": 8, "weighting": weighting}
    results = pair.generate(PROMPTS, method="surest", **settings)
    plain = pair.generate(PROMPTS, method="fixed_length", **settings)
    slow = pair.generate(PROMPTS, method="surest", engine="reference", batch_size=1, **settings)
    assert [result.text for result in results] == [result.text for result in slow]
    for prompt, result, unweighed in zip(PROMPTS, results, plain, strict=True):
        before = unweighed.rounds[0].weights or pair.weights
        p = [logprobs(m, prompt).max().exp().item() for m in pair.models]
        expected = [w * p_k for w, p_k in zip(before, p, strict=True)]
        for taken in result.rounds:
            assert taken.weights == pytest.approx(expected, rel=1e-4)
            nll = [candidate.nll for candidate in taken.candidates]
            means = [sum(map(mul, expected, each)) / sum(expected) for each in nll]
            fused = [candidate.fused for candidate in taken.candidates]
            assert fused == pytest.approx(means, rel=1e-4)


def test_two_methods_of_one_name_are_refused(minimax):
    class Other(minimax):
        pass

    twice = r"there are two methods 'minimax' \(of .*\); rename one"
    with pytest.raises(UserError, match=twice):
        register(Other)
    assert register(minimax) is minimax


def test_the_page_names_every_hook_of_a_method():
    hooks = {name for name in vars(Method) if not name.startswith("_")}
    table = PAGE.partition("| hook |")[2].partition("\n\n")[0]
    named = re.findall(r"`(\w+)\b", "".join(line.split("|")[1] for line in table.split("\n")[2:]))
    rest = {"decode", "plugins", "checkpoint", "check_models", "check_served"}
    assert set(named) == hooks - rest
