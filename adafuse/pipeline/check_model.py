"""What a model's path must be, as far as can be told without loading it."""

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
