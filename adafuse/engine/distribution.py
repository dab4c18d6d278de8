"""From logits to what decoding reads: masking, float32 softmax, top ids, margin, p(END)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from adafuse.engine.node import NextToken, Node
from adafuse.models.language_model import LanguageModel


@dataclass(frozen=True)
class Reducer:
    """Reduces the logits of one model on its device; one small tensor goes to the host.

    `top` is how many of the likeliest ids a method reads (at least 2, for the margin).
    """

    model: LanguageModel
    top: int

    def fill(self, nodes: Sequence[Node], logits: torch.Tensor) -> None:
        """Give every node its distribution, and its own log-probability where it is unknown.

        `logits` has shape [nodes, rows of the output layer].
        """
        self.start(nodes, logits)()

    def start(self, nodes: Sequence[Node], logits: torch.Tensor) -> Callable[[], None]:
        """Do what `fill` does on the device; the call that is returned waits for it."""
        vectors = self.log_softmax(logits)
        return partial(self._assign, nodes, vectors, self._numbers(nodes, vectors))

    def _assign(self, nodes: Sequence[Node], vectors: torch.Tensor, packed: torch.Tensor) -> None:
        numbers = packed.tolist()
        top = min(self.top, vectors.shape[1])
        for node, vector, row in zip(nodes, vectors, numbers, strict=True):
            own, margin, log_end, *rest = row
            if node.logprob is None and node.parent is not None:
                node.logprob = own
            ids = tuple(int(index) for index in rest[:top])
            node.next = NextToken(ids, tuple(rest[top:]), margin, log_end, vector)

    def log_softmax(self, logits: torch.Tensor) -> torch.Tensor:
        """Return float32 log-probabilities over the ids below len(tokenizer)."""
        return logits[:, : self.model.vocabulary].float().log_softmax(dim=-1)

    def _numbers(self, nodes: Sequence[Node], vectors: torch.Tensor) -> torch.Tensor:
        """Pack own log-probability, margin, log p(END), top ids and theirs: [nodes, 3 + 2 top].

        Ids stay exact in float64.
        """
        ids, logprobs = largest(vectors, min(self.top, vectors.shape[1]))
        first_two = logprobs[:, :2].exp()
        margin = first_two[:, 0] - first_two[:, 1] if ids.shape[1] > 1 else first_two[:, 0]
        end = sorted(index for index in self.model.end_ids if index < vectors.shape[1])
        log_end = vectors[:, end].logsumexp(dim=-1)
        own = self._own_logprobs(nodes, vectors)
        columns = [own[:, None], margin[:, None], log_end[:, None], ids, logprobs]
        return torch.cat([column.double() for column in columns], dim=1)

    def _own_logprobs(self, nodes: Sequence[Node], vectors: torch.Tensor) -> torch.Tensor:
        """Return log p(token | parent) per node, from the parent's vector wherever that is."""
        own = vectors.new_zeros(len(nodes))
        place = {id(node): index for index, node in enumerate(nodes)}
        unknown = [index for index, node in enumerate(nodes) if _needs_logprob(node)]
        inside = [index for index in unknown if id(nodes[index].parent) in place]
        outside = [index for index in unknown if id(nodes[index].parent) not in place]
        if inside:
            parents = [place[id(nodes[index].parent)] for index in inside]
            own[inside] = vectors[parents, [nodes[index].token for index in inside]]
        if outside:
            own[outside] = torch.stack([_under_known_parent(nodes[index]) for index in outside])
        return own


def largest(values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the indices and values of the `count` largest entries per row.

    Ties go to the lower index: torch.topk leaves their order open, they are common in 16-bit
    logits, and argmax is documented to return the first.
    """
    rest = values.clone()
    indices = []
    for _ in range(count):
        index = rest.argmax(dim=-1, keepdim=True)
        indices.append(index)
        rest.scatter_(1, index, float("-inf"))
    chosen = torch.cat(indices, dim=1)
    return chosen, values.gather(1, chosen)


def _needs_logprob(node: Node) -> bool:
    return node.logprob is None and node.parent is not None


def _under_known_parent(node: Node) -> torch.Tensor:
    assert node.parent is not None and node.parent.next is not None, "asked for before its parent"
    return node.parent.next.logprobs[node.token]
