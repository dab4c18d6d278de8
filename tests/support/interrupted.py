"""Decoding that Ctrl-C ends after so many texts."""

from collections.abc import Iterator
from typing import Any

import pytest

from adafuse.decoding.run import Run


class Interrupted:
    """Counts `texts` that are decoded, and interrupts when there are as many as the next stop."""

    def __init__(self, patch: pytest.MonkeyPatch, *stops: int) -> None:
        self.stops, self.texts, results = [*stops], 0, Run.results

        def counted(run: Run, prompts: Any) -> Iterator[Any]:
            for each in results(run, prompts):
                if self.stops[:1] == [self.texts]:
                    del self.stops[0]
                    raise KeyboardInterrupt
                self.texts += 1
                yield each

        patch.setattr(Run, "results", counted)
