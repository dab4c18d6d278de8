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

    def settled(self, text: str) -> str:
        """Return `text`, which holds no stop string, without the end of it that may become one."""
        longest = max(map(len, self.strings), default=0)
        for start in range(max(0, len(text) - longest + 1), len(text)):
            if any(string.startswith(text[start:]) for string in self.strings):
                return text[:start]
        return text
