"""Stop strings of a task."""

from collections.abc import Sequence


class StopStrings:
    """The strings that end a continuation; the text is cut before the first of them."""

    def __init__(self, strings: Sequence[str] = ()) -> None:
        self.strings = tuple(strings)

    def within(self, text: str) -> bool:
        """Whether `text` contains a stop string."""
        return any(string in text for string in self.strings)

    def cut(self, text: str) -> str:
        """Return `text` up to the first stop string in it."""
        places = [text.find(string) for string in self.strings if string in text]
        return text[: min(places)] if places else text
