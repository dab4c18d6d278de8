"""The methods of arXiv 2601.06022: `adafuse`, `fixed_length`, `beam_scaling` and `single`."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, model_validator

from adafuse.decoding.byte_words import ByteWords, SortedVocabulary
from adafuse.decoding.candidates import Span
from adafuse.decoding.fusion import FusionOptions, mean_nll, per_candidate
from adafuse.decoding.method import Method, Models
from adafuse.decoding.round import Example, Leader, Proposal, fuse_rounds
from adafuse.decoding.words import add_word, empty_span, greedy_words
from adafuse.engine.node import Node, Program, TokenSequence, evaluated, gather
from adafuse.models.spec import refuse_served
from adafuse.options import MaxWords, MethodOptions, ModelNumber, Positive

SENTENCE_END = re.compile(r"[.!?\u2026][^\s\w]*\s*$|[\u3002\uff01\uff1f]|\S\s*\n")
"""A full stop or the like at the end of a span, an East Asian one in it, or the end of a line."""


class AskOptions(FusionOptions):
    """Whether one model may write without the others."""

    ask: Literal["always", "unsure"] = "always"
    """rounds in which all models propose: every round, or only those where model `leader` is not
    confident about each of its tokens (`unsure`); the others then read in one forward pass what it
    wrote; change it when speed matters more than the last point of quality"""
    sure: Annotated[float, Field(ge=0, le=1)] = 0.9
    """smallest margin of a token at which model `leader` may write alone"""
    leader: ModelNumber = 0
    """number of the model that may write alone with `ask: unsure`; a model of weight 0 never
    does"""

    @property
    def decider(self) -> Leader | None:
        """Who decides rounds without the others, if anybody does."""
        return Leader(self.leader, self.sure) if self.ask == "unsure" else None


FusionOptionsT = TypeVar("FusionOptionsT", bound=FusionOptions)


class FusesWords(Method[FusionOptionsT]):
    """A method whose candidates are chosen by the `fusion` of its options."""

    def prepare(self, models: Models) -> None:
        self._fuse = self.options.rule([model.name for model in models])


class AdaFuseOptions(AskOptions):
    """The paper sweeps tau from 0 to 1; a margin is 1 at most."""

    replaced_by_gate = AskOptions.replaced_by_gate | {"disagreement", "gap"}
    tau: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] = 0.7
    """τ, the margin threshold: a model adds another word to its proposal while p(1) - p(2) of its
    next token is at least τ; a higher τ gives shorter spans and more joint decisions, and above 1
    no model is ever confident"""
    max_words: MaxWords = 3
    """M, maximum words of a proposal; `adaptive`: up to the end of the sentence; change it when
    texts are long and the models mostly agree"""
    margin: Literal["start", "word"] = "start"
    """margin of a word that τ is compared with: that of its first token, as in the paper (`start`),
    or the smallest of its tokens, at which alternatives then begin (`word`); change it when words
    such as numbers may begin confidently and end wrongly"""
    disagreement: Literal["select", "bytes", "pool"] = "select"
    """what happens where there is more than one candidate: the one with the lowest F(s) is
    committed, as in the paper (`select`); the next word is written byte by byte under the weighted
    mean of all models, and after it each model proposes one word (`bytes`); or that word is one
    more candidate (`pool`); change it when the models disagree inside words, as in translations"""
    gap: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """largest difference in F(s), in nats per token, between the best two candidates at which a
    word is written byte by byte; null: wherever there are two candidates; change it when
    `disagreement` is not `select` and forward passes matter"""
    branching: Positive = 1
    """B, number of alternatives that a model proposes when it is not confident; 1 switches this
    diversity-aware scaling off"""

    @model_validator(mode="after")
    def _gap_is_for_bytes(self) -> Self:
        if self.gap is not None and self.disagreement == "select":
            raise ValueError(f"gap {self.gap} is for disagreement bytes or pool; choose one")
        return self


class AdaFuse(FusesWords[AdaFuseOptions]):
    """Each model proposes words while it is sure, alternatives where not; all choose (3.2, 3.3)."""

    name = "adafuse"
    Options = AdaFuseOptions
    threshold = "tau"

    @property
    def reads_distributions(self) -> bool:
        return self.options.disagreement != "select"

    @property
    def top(self) -> int:
        """B first tokens to branch on, and at least the two of the margin."""
        return max(2, self.options.branching)

    def check_served(self, names: Sequence[str]) -> None:
        if names and self.reads_distributions:
            refuse_served(names[0], f"adafuse with disagreement {self.options.disagreement}")

    def prepare(self, models: Models) -> None:
        super().prepare(models)
        if self.reads_distributions:
            self._vocabularies = [
                SortedVocabulary(m.token_bytes, without=m.end_ids) for m in models
            ]

    def decode(self, example: Example) -> Program[None]:
        propose, settle = partial(self._propose, example), None
        if self.reads_distributions:
            settle = ByteWords(
                self._vocabularies,
                self.options.max_word_tokens,
                joins=self.options.disagreement == "pool",
                gap=self.options.gap,
                gated=self.options.gate is not None,
            ).settle
        return fuse_rounds(example, propose, self._fuse, self.options.decider, settle)

    def _propose(self, example: Example, sequence: TokenSequence) -> Program[Proposal]:
        """Return one span if the model stays confident, else B.

        Each of the B holds the confident words, and a word that takes one of the B likeliest tokens
        where the model was not confident.
        """
        rules, span = example.rules(self.options.max_word_tokens), empty_span(sequence)
        margins: list[float] = []
        while True:
            yield from evaluated([span.node])
            assert span.node.next is not None
            margin, doubt = span.node.next.margin, span.node
            if self.options.margin == "word":
                word = yield from add_word(span, rules)
                margin, doubt = min(word.doubts(span.node), key=itemgetter(0))
            margins.append(margin)
            if not margin >= self.options.tau:  # NaN is not confident
                assert doubt.next is not None
                sure = tuple(n.token for n in doubt.path() if n.depth > span.node.depth)
                likeliest = doubt.next.top_ids[: self.options.branching]
                branches = gather(add_word(span, rules, (*sure, z)) for z in likeliest)
                return (yield from branches), tuple(margins)
            span = yield from add_word(span, rules)
            if span.ends or rules.stops.within(span.text) or self._full(example, span):
                return [span], tuple(margins)

    def _full(self, example: Example, span: Span) -> bool:
        if self.options.disagreement == "bytes" and example.rounds and example.rounds[-1].joint:
            return True  # models that just differed mostly differ again, and use one word at most
        if self.options.max_words != "adaptive":
            return span.words == self.options.max_words
        sequence = span.node.sequence
        tokens = sequence.generated + span.node.depth - sequence.root.depth
        return tokens >= example.limits.max_new_tokens or bool(SENTENCE_END.search(span.text))


class FixedLengthOptions(AskOptions):
    """How long a span is."""

    words: Positive = 1
    """n, the words of every proposal"""


class FixedLength(FusesWords[FixedLengthOptions]):
    """Every model proposes a span of so many words, all score it, the best is committed.

    Margins are not read; only the end of the text makes a span shorter.
    """

    name = "fixed_length"
    Options = FixedLengthOptions

    def decode(self, example: Example) -> Program[None]:
        def propose(sequence: TokenSequence) -> Program[Proposal]:
            rules = example.rules(self.options.max_word_tokens)
            return [(yield from greedy_words(sequence, rules, self.options.words))], ()

        return fuse_rounds(example, propose, self._fuse, self.options.decider)


class BeamScalingOptions(FusionOptions):
    """How wide and how long the search is."""

    width: Positive = 3
    """beams per model"""
    beam_tokens: Positive = 5
    """number of tokens that the search runs"""


@dataclass(frozen=True, slots=True)
class Beam:
    """A hypothesis: its last node, its ids from the root, and their summed log-probability."""

    node: Node
    ids: tuple[int, ...] = ()
    logprob: float = 0.0
    ended: bool = False


class BeamScaling(FusesWords[BeamScalingOptions]):
    """Every model proposes words by beam search, all score them, the best is committed.

    Each beam is cut to its first complete word; a beam without one is finished greedily.
    """

    name = "beam_scaling"
    Options = BeamScalingOptions

    @property
    def top(self) -> int:
        return max(2, self.options.width)

    def decode(self, example: Example) -> Program[None]:
        return fuse_rounds(example, partial(self._propose, example), self._fuse)

    def _propose(self, example: Example, sequence: TokenSequence) -> Program[Proposal]:
        rules = example.rules(self.options.max_word_tokens)
        beams = yield from self._search(sequence)
        start = empty_span(sequence)
        return (yield from gather(add_word(start, rules, beam.ids) for beam in beams)), ()

    def _search(self, sequence: TokenSequence) -> Program[list[Beam]]:
        """Keep the `width` likeliest hypotheses; equal ones in order of parent, then id."""
        beams = [Beam(sequence.root)]
        for _ in range(self.options.beam_tokens):
            yield from evaluated(beam.node for beam in beams if not beam.ended)
            grown = [longer for beam in beams for longer in self._extensions(beam)]
            beams = sorted(grown, key=lambda beam: -beam.logprob)[: self.options.width]
        return beams

    def _extensions(self, beam: Beam) -> Iterator[Beam]:
        if beam.ended:
            yield beam
            return
        assert beam.node.next is not None
        width, after = self.options.width, beam.node.next
        for token, logprob in zip(after.top_ids[:width], after.top_logprobs[:width], strict=True):
            ended = token in beam.node.sequence.model.end_ids
            node = beam.node if ended else beam.node.child(token)
            yield Beam(node, (*beam.ids, token), beam.logprob + logprob, ended)


class SingleOptions(MethodOptions):
    """Nothing here changes the text."""

    max_word_tokens: Positive = 16
    """maximum tokens of a word; only affects how the trace is cut into rounds"""


class Single(Method[SingleOptions]):
    """A single model, which takes the likeliest token each time.

    A round of the trace is one word. Unlike a fused word, a word is cut at `max_new_tokens`, as
    greedy decoding is.
    """

    name = "single"
    Options = SingleOptions
    models = (1, 1)

    def decode(self, example: Example) -> Program[None]:
        def propose(sequence: TokenSequence) -> Program[Proposal]:
            left = example.limits.max_new_tokens - sequence.generated
            rules = example.rules(self.options.max_word_tokens, hard_limit=left)
            return [(yield from add_word(empty_span(sequence), rules))], ()

        return fuse_rounds(example, propose, per_candidate(mean_nll))
