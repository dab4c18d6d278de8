"""The folder that a report is written to: nobody else's files are touched."""

from pathlib import Path

from adafuse.errors import UserError
from adafuse.explorer.manifest import has_manifest

DATA = "data"


def check_folder(folder: Path) -> None:
    """Make the folder of a report, which may be there already.

    Raises:
        UserError: it is a file, cannot be made, or holds other things than a report.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        others = any(folder.iterdir()) and not has_manifest(folder / DATA)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"{str(folder)!r} cannot hold a report ({reason}); give another --out"
        ) from None
    if others:
        raise UserError(
            f"{str(folder)!r} holds other files than a report; give a new or empty folder"
        )
