"""The text of one prompt while it is decoded."""

from collections.abc import Iterator

from adafuse.records import Result


class TextStream(Iterator[str]):
    """Spans of text as they are committed; `result` is there when all of them have been read."""

    def __init__(self, spans: Iterator[str | Result]) -> None:
        self._spans = spans
        self.result: Result | None = None

    def __next__(self) -> str:
        for each in self._spans:
            if isinstance(each, Result):
                self.result = each
            elif each:
                return each
        raise StopIteration
