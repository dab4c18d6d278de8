"""Requests that failed: how many of them may, before the harness gets no answer at all."""

import logging

from adafuse.errors import UserError

logger = logging.getLogger(__name__)


class Failures:
    """Counts failed requests; of those of one kind no more than the part `share` may fail."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._errors: dict[str, str] = {}
        self.total = 0

    def add(self, name: str, error: str) -> None:
        """Count a request that failed."""
        self._errors[name] = error
        self.total += 1

    def check(self, kind: str, requests: int) -> None:
        """Refuse to answer with too many failures, else warn of them, and begin to count again.

        Raises:
            UserError: there are more; it tells the first one.
        """
        errors, self._errors = self._errors, {}
        if not errors:
            return
        first, error = next(iter(errors.items()))
        told = (
            f"{len(errors)} of {requests} {kind} requests failed; the first one, {first!r}, says:"
            f" {' '.join(error.split())}"
        )
        if len(errors) > self._share * requests:
            raise UserError(f"{told}; mend it or raise max_error_share={self._share:g}")
        logger.warning("%s; they count as wrong", told)
