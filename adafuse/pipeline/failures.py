"""Rows that failed: how many of a shard may, before the job itself has failed."""

import logging
from dataclasses import dataclass

from adafuse.errors import UserError
from adafuse.pipeline.journal import Journal

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ErrorLimit:
    """Of `rows` rows no more than the part `share`, from 0 to 1, may fail."""

    rows: int
    share: float

    def check(self, journal: Journal) -> None:
        """Refuse to go on with too many failed rows.

        Raises:
            UserError: there are more; it tells the first one.
        """
        if self._kept(failed := _failed(journal)):
            return
        first, error = next(iter(failed.items()))
        sentence = " ".join(error.split())
        raise UserError(
            f"{len(failed)} of {self.rows} rows failed, more than decode.max_error_share:"
            f" {self.share:g} allows; the first one, {first!r}, says: {sentence}; mend it or raise"
            f" the share, and run again: {len(journal.rows) - len(failed)} rows are kept"
        )

    def retry(self, journal: Journal) -> None:
        """Forget the failed rows of an attempt that had too many, so that they are tried again."""
        if not self._kept(failed := _failed(journal)):
            logger.warning("%d rows that failed are decoded again", len(failed))
            journal.forget(failed)

    def _kept(self, failed: dict[str, str]) -> bool:
        return len(failed) <= self.share * self.rows


def _failed(journal: Journal) -> dict[str, str]:
    """Return the errors of failed rows by id, the first one first."""
    rows = journal.rows.items()
    return {name: row["error"] for name, row in rows if row["stop_reason"] == "error"}
