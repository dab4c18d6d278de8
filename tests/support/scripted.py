"""Models that say what a test wrote down: whole methods are decoded against known probabilities."""

import math
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace

import torch

from adafuse.decoding.round import Example
from adafuse.decoding.words import Limits
from adafuse.engine.node import Engine, NextToken, Node
from adafuse.methods.registry import resolve
from adafuse.tokenization.token_bytes import TokenBytes

Script = Callable[[tuple[int, ...]], Sequence[float]]
START = 0
"""The only id of every prompt; a script is given the ids after it."""


class ScriptedModel:
    """What methods read of a `LanguageModel`; the last token of `tokens` is END.

    `script` gives the probabilities of all tokens after some ids. The tokenizer joins `merges`,
    the first ones first; without any it takes the longest token each time.
    """

    def __init__(
        self,
        name: str,
        tokens: Sequence[str | bytes],
        script: Script,
        *,
        merges: Sequence[tuple[str, str]] = (),
        embeddings: Sequence[Sequence[float]] | None = None,
        context: int = 1000,
        chat: bool = False,
    ) -> None:
        token_bytes = [t.encode() if isinstance(t, str) else t for t in tokens[:-1]]
        ids = {surface: index for index, surface in enumerate(token_bytes)}
        single = {surface[0]: index for surface, index in ids.items() if len(surface) == 1}
        self.name = name
        self.token_bytes = TokenBytes((*token_bytes, None), ids, single)
        self.end_ids = self.end_ids = frozenset([len(token_bytes)])
        self.vocabulary = len(tokens)
        self.context = context
        self.chat = chat
        self.device = torch.device("cpu")
        self.script = script
        self.merges = [(left.encode(), right.encode()) for left, right in merges]
        weight = None if embeddings is None else torch.tensor(embeddings)
        layer = None if weight is None else SimpleNamespace(weight=weight)
        self.network = SimpleNamespace(get_input_embeddings=lambda: layer)

    def anchor(self, context: Sequence[int]) -> SimpleNamespace:
        """Return what decodes ids after the given ones; here every token has a text of its own."""
        of = self.token_bytes.of

        def added(ids: Sequence[int]) -> str:
            return b"".join(of[token] or b"" for token in ids).decode(errors="replace")

        return SimpleNamespace(added=added)

    def encode_span(self, span: str) -> tuple[int, ...]:
        """Return the ids of a text."""
        pieces = self._joined(span.encode()) if self.merges else self._longest(span.encode())
        return tuple(self.token_bytes.ids[piece] for piece in pieces)

    def _joined(self, text: bytes) -> list[bytes]:
        pieces = [bytes([byte]) for byte in text]
        for pair in self.merges:
            place = 0
            while place + 1 < len(pieces):
                if (pieces[place], pieces[place + 1]) == pair:
                    pieces[place : place + 2] = [b"".join(pair)]
                place += 1
        return pieces

    def _longest(self, text: bytes) -> list[bytes]:
        pieces = []
        while text:
            known = [surface for surface in self.token_bytes.ids if text.startswith(surface)]
            if not known:
                raise ValueError(f"{self.name} cannot spell {text!r}")
            pieces.append(max(known, key=len))
            text = text[len(pieces[-1]) :]
        return pieces


class ScriptedEngine(Engine):
    """Fills nodes from the script of its model; `asked` are the ids after the prompt."""

    def __init__(self, model: ScriptedModel) -> None:
        super().__init__(model)
        self.asked: list[tuple[int, ...]] = []

    def evaluate(self, nodes: Iterable[Node]) -> None:
        """Look the distributions up."""
        for node in nodes:
            committed = node.sequence.ids[node.sequence.prompt_length :]
            ids = (*committed, *(step.token for step in node.path()))
            self.asked.append(ids)
            node.next = self._next(self.model.script(ids))
            if node.parent is not None and node.parent.next is not None:
                node.logprob = float(node.parent.next.logprobs[node.token])

    def _next(self, probabilities: Sequence[float]) -> NextToken:
        vector = torch.tensor(probabilities, dtype=torch.float64).log().float()
        ids = tuple(vector.sort(descending=True, stable=True).indices[:2].tolist())
        first, second = (math.exp(vector[index]) for index in ids)
        end = float(vector[sorted(self.model.end_ids)].logsumexp(dim=-1))
        return NextToken(ids, tuple(vector[list(ids)].tolist()), first - second, end, vector)


def run(program):
    """Run a program to its end and return what it returns."""
    try:
        requests = next(program)
        while True:
            for request in requests:
                request.engine.evaluate([request])
            requests = next(program)
    except StopIteration as done:
        return done.value


def decode(method, models, *, weights=None, limits=None, prompt="", **options) -> Example:
    """Decode one example with a method of the registry; its rounds and text are in it."""
    chosen = resolve(method, options)
    chosen.check_models(len(models))
    chosen.prepare(models)
    example = Example(weights or (1.0,) * len(models), Limits(**(limits or {})), prompt)
    example.sequences = [ScriptedEngine(model).open([START]) for model in models]
    run(chosen.decode(example))
    return example
