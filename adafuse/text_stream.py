"""The text of one prompt while it is decoded."""

from collections.abc import Generator, Iterator
from types import TracebackType

from adafuse.records import Result


class TextStream(Iterator[str]):
    """Spans of text as they are committed; `result` is there when all of them have been read.

    A stream that is not read to its end is to be closed, or used in a `with` block: it holds the
    keys and values of its models until then.
    """

    def __init__(self, spans: Generator[str | Result]) -> None:
        self._spans = spans
        self.result: Result | None = None

    def __next__(self) -> str:
        for each in self._spans:
            if isinstance(each, Result):
                self.result = each
            elif each:
                return each
        raise StopIteration

    def __enter__(self) -> "TextStream":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Decode no further, and give back what the models hold; there are no more spans."""
        self._spans.close()
