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

Above0 = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class SpecFuseOptions(MethodOptions):
    """window: the most tokens of a draft; votes: how a verifier's scores are added up.

    `votes` is "softmax" (over the candidates) or "mean_nll" (mean log-probabilities), `hedge` the
    learning rate of the models' weights (None: they stay, as they do with two models). Drafts are
    greedy, or with `sampling` drawn with `temperature` and `top_p` from a generator that `seed`
    and the prompt determine.
    """

    window: Positive = 10
    votes: Literal["softmax", "mean_nll"] = "softmax"
    hedge: Above0 | None = None
    sampling: bool = False
    temperature: Above0 = 0.6
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.9
    seed: int = 0


class SpecFuse(Method[SpecFuseOptions]):
    """The draft with the highest total of votes is taken.

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
