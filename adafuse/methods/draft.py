"""Drafts of a number of tokens (SpecFuse, arXiv 2412.07380)."""

from collections.abc import Sequence

from adafuse.engine.node import Sequence as TokenSequence
from adafuse.engine.program import Program, evaluated
from adafuse.methods.sampling import Pick
from adafuse.methods.word import Span
from adafuse.text.added import LONGEST_CONTEXT, UNFINISHED
from adafuse.text.stops import StopStrings
from adafuse.text.words import UTF8_BYTES


def draft(
    sequence: TokenSequence, window: int, left: int, stops: StopStrings, pick: Pick
) -> Program[Span]:
    """Write `window` tokens, fewer where END is picked or the text holds a stop string.

    Only at `window` tokens a word can be unfinished: the draft is cut back to its last complete
    one, or stays if there is none. A character in the making is finished first. Where no more than
    `left` tokens may be written in all, and that is less, the text is cut there, as `single` is.
    """
    model = sequence.model
    anchor = model.anchor(sequence.root.last_ids(LONGEST_CONTEXT))
    steps = [Span(sequence.root)]
    tokens: list[int] = []
    last = steps[0]
    while not (stops.within(last.text) or _is_full(last.text, len(tokens), min(window, left))):
        yield from evaluated([last.node])
        assert last.node.next is not None
        token = pick(last.node.next)
        if token in model.stop_ids:
            return Span(last.node, last.text, ends=True)
        tokens.append(token)
        last = Span(last.node.child(token), anchor.added(tokens))
        steps.append(last)
    if last.node.logprob is None:  # a sampled token need not be among the likeliest ids
        yield from evaluated([last.node])
    whole = stops.within(last.text) or left < window
    return last if whole else last_complete_word(steps)


def last_complete_word(steps: Sequence[Span]) -> Span:
    """Return the longest of the growing `steps` behind which a word ends, or the last if none is.

    A word ends before and behind whitespace.
    """
    text = steps[-1].text
    for step in reversed(steps):
        if step.text.strip() and not step.text.endswith(UNFINISHED):
            following = text[len(step.text) :]
            if step.text[-1].isspace() or following[:1].isspace():
                return step
    return steps[-1]


def _is_full(text: str, tokens: int, window: int) -> bool:
    return tokens >= window + (UTF8_BYTES - 1 if text.endswith(UNFINISHED) else 0)
