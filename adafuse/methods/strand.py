"""One model's ids for a text that is written byte by byte or token by token."""

from adafuse.engine.node import Node, Sequence
from adafuse.engine.program import Program
from adafuse.text.byte_spans import encode_bytes

LONGEST_CHAIN = 64
"""Text without spaces is committed after this many ids, whatever could still be merged."""


class Strand:
    """A model's view of the text so far: committed ids, then a chain in the tree for the rest.

    The rest, `pending`, begins at the last place where a word began, so it is re-encoded whenever
    it grows: its chain shares nodes with the last one, and nothing is ever rolled back. A token
    that the model would have written itself is kept as it is, so that a model alone writes its own
    greedy text; unless `keeps_own` is off, and the ids are always those of the tokenizer.
    """

    def __init__(self, sequence: Sequence, *, keeps_own: bool = True) -> None:
        self.sequence = sequence
        self._keeps_own = keeps_own
        self.node: Node = sequence.root
        self.pending = b""

    @property
    def generated(self) -> int:
        """How many ids the model holds for the text."""
        return self.sequence.generated + self.node.depth - self.sequence.root.depth

    def known(self) -> Program[Node]:
        """Ask for the distribution behind the text, and return its node."""
        missing = [n for n in (self.sequence.root, *self.node.path()) if n.next is None]
        if missing:
            yield missing
        return self.node

    def extend(self, surface: bytes) -> None:
        """Append bytes to the text.

        Raises:
            ContextFullError: the model has no position left.
            ValueError: the tokenizer cannot encode these bytes behind the text.
        """
        surfaces = self.sequence.model.surfaces
        own = self.node.next.greedy if self.node.next and self._keeps_own else None
        self.pending += surface
        if own is not None and surfaces.of[own] == surface:
            self.node = self.node.child(own)
        else:
            self.node = self.encoded(self.pending)
        self._settle()

    def encoded(self, text: bytes) -> Node:
        """Return the last node of the ids of `text` behind the committed ids."""
        chain = self.sequence.root.chain(encode_bytes(self.sequence.model, text))
        return chain[-1] if chain else self.sequence.root

    def finish(self) -> None:
        """Commit what is pending."""
        self._commit(self.node)

    def _settle(self) -> None:
        """Commit up to the last beginning of a word at which a token begins, too."""
        path = self.node.path()
        place, border, at = 0, 0, None
        for index, node in enumerate(path):
            if _begins_word(self.pending, place) or len(path) - index == LONGEST_CHAIN:
                border, at = place, node.parent
            place += len(self.sequence.model.surfaces.of[node.token] or b"")
        if at is None or at is self.sequence.root:
            return
        rest = tuple(node.token for node in path if node.depth > at.depth)
        self._commit(at)
        self.pending = self.pending[border:]
        self.node = self.sequence.root.chain(rest)[-1]

    def _commit(self, node: Node) -> None:
        if node is not self.sequence.root:
            self.sequence.engine.commit(node)


def _begins_word(text: bytes, place: int) -> bool:
    """Whether whitespace begins at `place`, behind something else."""
    return (
        0 < place < len(text)
        and text[place : place + 1].isspace()
        and not text[place - 1 : place].isspace()
    )
