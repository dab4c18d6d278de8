"""What each model writes on its own, for methods that start from whole answers."""

from adafuse.engine.node import ContextFullError
from adafuse.engine.node import Sequence as TokenSequence
from adafuse.engine.program import Program, evaluated, gather
from adafuse.methods.example import Example
from adafuse.records import Answer
from adafuse.text.added import LONGEST_CONTEXT


def own_answers(example: Example) -> Program[list[Answer]]:
    """Return each model's own answer: those of the example, or else decoded greedily."""
    if example.answers is not None:
        return list(example.answers)
    return (yield from gather(_greedy(example, sequence) for sequence in example.sequences))


def _greedy(example: Example, sequence: TokenSequence) -> Program[Answer]:
    node, text = sequence.root, ""
    anchor = sequence.model.anchor(node.last_ids(LONGEST_CONTEXT))
    ids: list[int] = []
    while len(ids) < example.limits.max_new_tokens:
        yield from evaluated([node])
        assert node.next is not None
        if node.next.greedy in sequence.model.stop_ids:
            return Answer(text, "eos")
        try:
            node = node.child(node.next.greedy)
        except ContextFullError:
            break
        ids.append(node.token)
        text = anchor.added(ids)
        if example.stops.within(text):
            return Answer(example.stops.cut(text), "stop")
    return Answer(text, "length")
