"""Options of the authors' scripts: each is answered by what to give here."""

import re
from pathlib import Path

import pytest

from adafuse.cli.errors import AUTHORS
from tests.cli.terminal import adafuse

PAGE = (Path(__file__).parents[2] / "docs/authors-scripts.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--theta_delta", "--theta_delta is an option of the authors' scripts; give --tau (docs/"),
        ("--model_path2", "--model_path2 is an option of the authors' scripts; give --model, once"),
    ],
)
def test_an_option_of_theirs_names_ours(option, said):
    done = adafuse("generate", option, "1")
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_page_has_all_of_them():
    table = PAGE.partition("| there |")[2].partition("\n\n")[0]
    there = "".join(line.split("|")[1] for line in table.split("\n")[2:])
    named = {name.rstrip("1234") for name in re.findall(r"--\w+", there)}
    assert named - {"--prompts"} == AUTHORS.keys() - {"--answer_field"}
