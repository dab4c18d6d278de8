"""What every engine offers; the tree engine and the reference engine are interchangeable."""

from collections.abc import Iterable
from typing import Protocol

from adafuse.engine.node import Node, Sequence
from adafuse.models.language_model import LanguageModel


class Engine(Protocol):
    """Runs one model for many sequences."""

    @property
    def model(self) -> LanguageModel:
        """The model that this engine runs."""
        ...

    @property
    def context(self) -> int:
        """How many positions a sequence may have."""
        ...

    def share(self, prefix_ids: list[int]) -> None:
        """Prepare for prompts that begin with these ids, before the first sequence is opened."""
        ...

    def open(self, prompt_ids: list[int]) -> Sequence:
        """Begin a sequence after a prompt; its root is the prompt's last token, not evaluated."""
        ...

    def evaluate(self, nodes: Iterable[Node]) -> None:
        """Fill in `next` and `logprob` of nodes; a node's parent is evaluated or asked with it."""
        ...

    def commit(self, node: Node) -> None:
        """Append the path to `node` to its sequence and forget the rest of the tree."""
        ...

    def close(self, sequence: Sequence) -> None:
        """End a sequence and free what it holds."""
        ...
