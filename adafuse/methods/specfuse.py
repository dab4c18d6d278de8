"""`specfuse`: every model drafts, all models verify all drafts (arXiv 2412.07380, SpecEM)."""

from typing import Annotated, Literal

from pydantic import Field

from adafuse.engine.node import Sequence
from adafuse.engine.program import Program
from adafuse.methods.draft import draft
from adafuse.methods.example import Example
from adafuse.methods.method import Method
from adafuse.methods.options import MethodOptions, Positive
from adafuse.methods.rounds import Proposal, fuse_rounds
from adafuse.methods.sampling import Pick, generator, greedy, nucleus
from adafuse.methods.votes import VOTES, Ballot
from adafuse.told import told

Above0 = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class SpecFuseOptions(MethodOptions):
    """How drafts are written and voted on."""

    window: Annotated[Positive, told("the most tokens of a draft")] = 10
    votes: Annotated[
        Literal["softmax", "mean_nll"],
        told(
            "what a model gives to a draft: its softmax over the drafts, or its mean"
            " log-probability"
        ),
    ] = "softmax"
    hedge: Annotated[
        Above0 | None,
        told("learning rate of the models' weights; null: they stay, as they do with two models"),
    ] = None
    sampling: Annotated[bool, told("draw drafts instead of writing them greedily")] = False
    temperature: Annotated[Above0, told("that of `sampling`")] = 0.6
    top_p: Annotated[
        Annotated[float, Field(gt=0, le=1)],
        told("draw from the likeliest tokens that together have this probability"),
    ] = 0.9
    seed: Annotated[int, told("with the prompt, decides what is drawn")] = 0


class SpecFuse(Method[SpecFuseOptions]):
    """Every model drafts the next tokens, all vote on all drafts, the highest total is taken.

    The published code adds up mean raw logits, which depend on the scale of a model, and also cuts
    finished drafts; here log-probabilities vote, END included, and only a full window is cut.
    """

    name = "specfuse"
    Options = SpecFuseOptions

    def decode(self, example: Example) -> Program[None]:
        """Draft, verify and commit until the text ends."""
        options = self.options
        picks = {seq: self._pick(number, seq) for number, seq in enumerate(example.sequences)}
        ballot = Ballot(VOTES[options.votes], options.hedge, example.weights)

        def propose(sequence: Sequence) -> Program[Proposal]:
            left = example.limits.max_new_tokens - sequence.generated
            pick = picks[sequence]
            span = yield from draft(sequence, options.window, left, example.stops, pick)
            return Proposal([span])

        return fuse_rounds(example, propose, ballot)

    def _pick(self, number: int, sequence: Sequence) -> Pick:
        if not self.options.sampling:
            return greedy
        random = generator(self.options.seed, number, sequence)
        return nucleus(self.options.temperature, self.options.top_p, random)
