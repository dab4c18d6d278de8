"""What a model's path must be, as far as can be told without loading it."""

import json
from pathlib import Path

from adafuse.errors import UserError


def check_model(where: str, path: str, revision: str | None) -> None:
    """Check a model folder, or the form of a hub id, before anything is loaded.

    Args:
        where: names the setting in errors.
        path: folder or hub id.
        revision: of a hub model.

    Raises:
        UserError: no model folder, or a revision for one.
    """
    folder = Path(path)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UserError(
                f"{where}: {path!r} has no config.json; give a Hugging Face model folder"
            )
        if not any(folder.glob("tokenizer*")):
            raise UserError(f"{where}: {path!r} has no tokenizer; put its tokenizer.json there")
        if revision is not None:
            raise UserError(
                f"{where}: revision {revision!r} is for hub models, but {path!r} is a folder;"
                " remove it"
            )
    elif path.startswith((".", "/", "~")) or path.count("/") != 1:
        raise UserError(
            f"{where}: {path!r} is not a folder; give a model folder or a hub id org/name"
        )


def check_checkpoint(where: str, path: str, revision: str | None, model_type: str) -> None:
    """Check a model of a certain type as `check_model` does, and the type of a folder.

    Args:
        where: names the setting in errors.
        path: folder or hub id.
        revision: of a hub model.
        model_type: what the model's config.json must say that it is.

    Raises:
        UserError: no model folder, one of another type, or a revision for one.
    """
    check_model(where, path, revision)
    if Path(path).is_dir() and (found := _model_type(where, path)) != model_type:
        raise UserError(
            f"{where}: {path!r} holds a model of type {found!r}, not {model_type!r}; name one of"
            " that type"
        )


def _model_type(where: str, path: str) -> object:
    try:
        config = json.loads(Path(path, "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{where}: the config.json of {path!r} cannot be read: {error}") from None
    return config.get("model_type") if isinstance(config, dict) else None
