"""The file of `adafuse generate`, and the journal that keeps its rows until it is written."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adafuse.cli.options import given
from adafuse.cli.output import counted
from adafuse.errors import UserError
from adafuse.models.spec import LOADING, ModelSpec
from adafuse.plugins import code_of
from adafuse.version import ENGINE_VERSION

if TYPE_CHECKING:
    from adafuse.workflow.journal import Journal


def check_out(out: Path) -> None:
    """Refuse a file that cannot be written, before anything is decoded."""
    from adafuse.files import check_writable

    if out.suffix != ".parquet" and not out.is_dir():
        raise UserError(
            f"--out {str(out)!r} does not end in .parquet, the format of what is written; call it"
            f" {str(out.with_suffix('.parquet'))!r}"
        )
    absolute = Path(os.path.abspath(out))
    top = Path(*absolute.parts[:2])
    if absolute != top and not top.exists():  # no place for results, so more likely a slip
        raise UserError(f"--out {str(out)!r}: {str(top)!r} does not exist; check the path")
    check_writable(out)


@dataclass(frozen=True)
class ResultFile:
    """What a command writes, in the words of its `settings`, and the journal that keeps rows."""

    out: Path
    settings: dict[str, Any]
    plugins: dict[str, str]
    journal: "Journal"

    @classmethod
    def of(
        cls,
        out: Path,
        models: Sequence[ModelSpec],
        weights: Sequence[float] | None,
        decoding: Mapping[str, Any],
        rows: Mapping[str, str],
        *,
        resume: bool,
    ) -> "ResultFile":
        """Open the journal for prompts by id; refuse one with rows, but to `resume`."""
        check_out(out)
        from adafuse.decoding.fusion import FUSION_RULES
        from adafuse.methods import METHODS
        from adafuse.workflow.digest import step_key
        from adafuse.workflow.journal import Journal, journal_path, journal_rows

        if not resume and (held := len(journal_rows(path := journal_path(out)))):
            raise UserError(
                f"{str(path)!r} holds {counted(held, 'prompt')} of an interrupted command; add"
                " --resume to go on with it, or delete the file"
            )
        loading = {name: [getattr(spec, own) for spec in models] for name, own in LOADING.items()}
        settings = {"models": [spec.path for spec in models], **loading, **given(weights=weights)}
        settings |= decoding
        rule = FUSION_RULES.get(decoding.get("fusion", ""))
        plugins = code_of(METHODS[decoding["method"]], rule)
        same = [settings, plugins, ENGINE_VERSION, [_files(spec.path) for spec in models]]
        digests = {name: step_key("generate", same, text) for name, text in rows.items()}
        return cls(out, settings, plugins, Journal(journal_path(out), digests))

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        """Write the file, after which the journal is not needed."""
        write_trace(self.out, rows, self.settings, self.plugins)
        self.journal.path.unlink(missing_ok=True)


def _files(model: str) -> list[tuple[str, int, int]]:
    """Return the names, sizes and times of a model's files; reading them would take too long."""
    path = Path(model)
    files = sorted(path.iterdir()) if path.is_dir() else [path] if path.is_file() else []
    return [(file.name, (found := file.stat()).st_size, found.st_mtime_ns) for file in files]


def write_trace(
    out: Path,
    rows: Sequence[dict[str, Any]],
    described: Mapping[str, Any],
    plugins: Mapping[str, str],
) -> None:
    """Write rows to a Parquet file, which says how they were made in the words of `described`."""
    from adafuse.parquet import write_table
    from adafuse.results import FIELDS
    from adafuse.version import versions

    used = {**versions(), **plugins}
    write_table(out, FIELDS, rows, {"settings": dict(described), "versions": used})
