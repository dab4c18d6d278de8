"""Settings that a run's method does not have, and checkpoints that are of another kind."""

from pathlib import Path
from typing import Any

import pytest

from adafuse.config.reading import parse_config
from adafuse.errors import UserError


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, str]:
    """A folder per type of model."""
    for kind in ("deberta-v2", "t5", "llama"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "config.json").write_text(f'{{"model_type": "{kind}"}}')
        (tmp_path / kind / "tokenizer.json").write_text("{}")
    return {"ranker": str(tmp_path / "deberta-v2"), "fuser": str(tmp_path / "t5")}


def blender(values: dict[str, Any], options: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Put a run of LLM-Blender into a configuration."""
    values["runs"] |= {
        "right": {"method": "single", "models": ["right"]},
        "blend": {"method": "llm_blender", "models": ["left", "right"], "options": options, **more},
    }
    return values


@pytest.mark.parametrize(("option", "kind"), [("ranker", "deberta-v2"), ("fuser", "t5")])
def test_a_checkpoint_of_another_type_is_refused(
    values: dict[str, Any], folders: dict[str, str], tmp_path: Path, option: str, kind: str
) -> None:
    parse_config(blender(values, folders))
    parse_config(blender(values, {**folders, option: "org/name"}))
    wrong = {**folders, option: str(tmp_path / "llama")}
    sentence = rf"blend: options\.{option}: '.*/llama' holds .* of type 'llama', not '{kind}'; name"
    with pytest.raises(UserError, match=sentence):
        parse_config(blender(values, wrong))


def test_a_fuser_that_is_not_used_is_not_checked(
    values: dict[str, Any], folders: dict[str, str]
) -> None:
    with pytest.raises(UserError, match=r"options\.fuser: '/nowhere' is not a folder"):
        parse_config(blender(values, {**folders, "fuser": "/nowhere"}))
    parse_config(blender(values, {**folders, "fuser": "/nowhere", "rank_only": True}))
    with pytest.raises(UserError, match=r"options\.ranker: '/nowhere' is not a folder"):
        parse_config(blender(values, {"ranker": "/nowhere", "rank_only": True}))


def test_a_revision_of_a_checkpoint_folder_is_refused(
    values: dict[str, Any], folders: dict[str, str]
) -> None:
    with pytest.raises(UserError, match=r"blend: options\.ranker: revision 'abc' is for hub"):
        parse_config(blender(values, {**folders, "ranker_revision": "abc"}))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", r"config\.json of '.*/t5' cannot be read"),
        ("[]", "of type None, not 't5'"),
        ("{}", "of type None, not 't5'"),
    ],
)
def test_a_checkpoint_whose_type_is_unknown_is_refused(
    values: dict[str, Any], folders: dict[str, str], text: str, sentence: str
) -> None:
    Path(folders["fuser"], "config.json").write_text(text)
    with pytest.raises(UserError, match=sentence):
        parse_config(blender(values, folders))


def test_weights_of_a_method_that_asks_the_models_nothing_are_refused(
    values: dict[str, Any], folders: dict[str, str]
) -> None:
    sentence = r"blend: weights \[1\.0, 2\.0\] change nothing in method llm_blender, .*; remove"
    with pytest.raises(UserError, match=sentence):
        parse_config(blender(values, folders, weights=[1, 2]))
