"""The file of `adafuse generate`, and the journal that keeps its rows until it is written."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adafuse.cli.options import given
from adafuse.cli.output import counted
from adafuse.errors import UserError
from adafuse.models.files import check_unchanged, keys_now, local_path
from adafuse.models.spec import LOADING, ModelSpec, columns, with_adapter
from adafuse.records.result import Chat, Prompt, as_text
from adafuse.storage.files import remove_torn
from adafuse.version import ENGINE_VERSION

if TYPE_CHECKING:
    from adafuse.storage.journal import Journal


def check_out(out: Path, prompts: Path | None = None) -> None:
    """Refuse a file that cannot be written or would replace the prompts, before any is decoded."""
    from adafuse.storage.files import check_writable
    from adafuse.storage.journal import journal_path

    if out.suffix != ".parquet" and not out.is_dir():
        raise UserError(
            f"--out {str(out)!r} does not end in .parquet, the format of the output; call it"
            f" {str(out.with_suffix('.parquet'))!r}"
        )
    absolute = Path(os.path.abspath(out))
    top = Path(*absolute.parts[:2])
    if absolute != top and not top.exists():  # no place for results, so more likely a slip
        raise UserError(f"--out {str(out)!r}: {str(top)!r} does not exist; check the path")
    check_writable(out, prompts)
    check_writable(journal_path(out), prompts)


@dataclass(frozen=True)
class Asked:
    """What a command decodes with.

    `settings` are in the command's words, `plugins` the code that is not AdaFuse's, and `same` is
    what makes two texts the same, with that of their prompts.
    """

    settings: dict[str, Any]
    plugins: dict[str, str]
    same: str

    @classmethod
    def of(
        cls,
        models: Sequence[ModelSpec],
        weights: Sequence[float] | None,
        decoding: Mapping[str, Any],
    ) -> "Asked":
        from adafuse.methods import METHODS, resolve
        from adafuse.models.placement import Place

        settings = {"models": [spec.path for spec in models], **columns(models, LOADING)}
        settings |= {**given(weights=weights), **decoding}
        known = METHODS[decoding["method"]].Options.model_fields
        options = {name: value for name, value in decoding.items() if name in known}
        chosen = resolve(decoding["method"], options)
        entries = [*models, *map(chosen.checkpoint, chosen.checkpoints)]
        names = [
            with_adapter(str(local_path(each.path, each.revision) or each.path), each.adapter)
            for each in entries
        ]
        read = keys_now([*names, *map(str, chosen.files.values())])
        deciding = {k: v for k, v in settings.items() if k not in ("models", "server_key")}
        deciding["dtype"] = [str(Place.of(spec).dtype) for spec in models if spec.server is None]
        deciding["server"] = [spec.server is not None for spec in models]  # one may move
        same = json.dumps([deciding, chosen.plugins, ENGINE_VERSION, read], sort_keys=True)
        return cls(settings, chosen.plugins, same)


@dataclass(frozen=True)
class ResultFile:
    """What a command writes, in the words of its `settings`, and the journal that keeps rows."""

    out: Path
    settings: dict[str, Any]
    plugins: dict[str, str]
    journal: "Journal"
    digests: frozenset[str]
    resume: bool

    @classmethod
    def of(
        cls,
        out: Path,
        models: Sequence[ModelSpec],
        weights: Sequence[float] | None,
        decoding: Mapping[str, Any],
        prompts: Mapping[str, Prompt],
        *,
        resume: bool,
    ) -> "ResultFile":
        """Read the journal for prompts by id."""
        from adafuse.storage.journal import digest_of, journal_path

        asked = Asked.of(models, weights, decoding)
        digests = {
            name: digest_of("generate", asked.same, isinstance(prompt, Chat), as_text(prompt))
            for name, prompt in prompts.items()
        }
        journal = _journal(journal_path(out), digests, resume=resume)
        settings, known = asked.settings, frozenset(digests.values())
        file = cls(out, settings, asked.plugins, journal, known, resume)
        file.check_unfinished()
        return file

    def check(self, served: list[Any]) -> None:
        """Refuse models that were changed while they were loaded, or that other servers have."""
        if served:
            from adafuse.records.served import are_same

            self.settings["served"] = served
            before = len(self.journal.rows)
            self.journal.continue_with(served, are_same)
            if dropped := before - len(self.journal.rows):
                raise UserError(
                    f"{str(self.journal.path)!r} has {counted(dropped, 'prompt')} of other models"
                    " than the servers have now; start those servers again, or delete the file"
                )
        for path in [*self.settings["models"], *filter(None, self.settings.get("adapter", ()))]:
            check_unchanged(str(Path(path)))
        self.check_unfinished()

    def check_unfinished(self) -> None:
        """Refuse to go on with a file that is whole, which another command may just have made."""
        if self.resume and not self.journal.rows and self.out.exists():
            raise UserError(
                f"{str(self.out)!r} is complete, so there is nothing to resume; leave out"
                " --resume to write it again"
            )

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        """Write the file; the journal stays if it has what the file has not, or some failed."""
        from adafuse.storage.journal import journal_rows
        from adafuse.storage.parquet import as_table
        from adafuse.storage.traces import PROMPT_FIELDS, write_trace

        remove_torn(self.out)
        write_trace(self.out, as_table(PROMPT_FIELDS, rows), self.settings, self.plugins)
        failed = any(row["stop_reason"] == "error" for row in rows)
        if not failed and journal_rows(self.journal.path).keys() <= self.digests:
            self.journal.path.unlink(missing_ok=True)


def _journal(path: Path, digests: Mapping[str, str], *, resume: bool) -> "Journal":
    """Read a journal; refuse one that the command does not go on with."""
    from adafuse.storage.journal import Journal, journal_rows

    journal, held = Journal(path, digests), len(journal_rows(path))
    check_journal(path)
    if held and not resume:
        raise UserError(
            f"{str(path)!r} holds {counted(held, 'prompt')} of an earlier command; add --resume"
            " to continue it, or delete the file"
        )
    if held and not journal.rows:
        raise UserError(
            f"none of the {counted(held, 'prompt')} in {str(path)!r} is one of this command's"
            " (other models, settings or prompts); give the same ones, or delete the file"
        )
    return journal


def check_journal(path: Path) -> None:
    """Refuse to keep finished texts in a file that is none of ours."""
    from adafuse.storage.journal import is_foreign, journal_rows

    if is_foreign(path) and not journal_rows(path):
        raise UserError(
            f"{str(path)!r} is another file, and finished texts would be kept under its name; give"
            " --out another name"
        )
