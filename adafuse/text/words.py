"""Where a word ends (adafuse.md, "Word"): the rules on text alone."""

from dataclasses import dataclass, field

from adafuse.text.added import UNFINISHED
from adafuse.text.stops import StopStrings

UTF8_BYTES = 4
"""The most bytes, and so the most byte tokens, of one character."""


@dataclass(frozen=True, slots=True)
class WordRules:
    """Decides after each token whether the word is complete.

    `max_tokens` is the cap for text without spaces; a character that is being spelled in bytes at
    the cap is finished first. `hard_limit` cuts even that (None: no limit).
    """

    stops: StopStrings = field(default_factory=StopStrings)
    max_tokens: int = 16
    hard_limit: int | None = None

    def complete(self, text: str, tokens: int) -> bool:
        """Whether the word `text` of `tokens` ids ends here whatever follows (rules 2, 4, 5)."""
        if self.hard_limit is not None and tokens >= self.hard_limit:
            return True
        if text.endswith(UNFINISHED):
            return tokens >= self.max_tokens + UTF8_BYTES - 1
        ends_in_space = bool(text.strip()) and text[-1].isspace()
        return ends_in_space or self.stops.within(text) or tokens >= self.max_tokens

    def ends_before(self, text: str, addition: str) -> bool:
        """Whether the word `text` ends because the next token adds `addition` (rule 3)."""
        finished = bool(text.strip()) and not text.endswith(UNFINISHED)
        return finished and addition[:1].isspace()
