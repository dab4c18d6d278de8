"""The shortest text segment of Cool-Fusion (arXiv 2407.19807, section 3)."""

from collections.abc import Sequence

from adafuse.engine.node import Sequence as TokenSequence
from adafuse.engine.program import Program
from adafuse.methods.word import Span, add_word
from adafuse.text.added import UNFINISHED
from adafuse.text.words import WordRules


def shortest_segment(sequence: TokenSequence, rules: WordRules) -> Program[Span]:
    """Write the fewest greedy ids whose text is decodable: encoding it again gives these ids.

    The text has whole characters and something besides whitespace. A word is the longest segment,
    whatever its ids; END alone is a segment.
    """

    def decodable(text: str, ids: Sequence[int]) -> bool:
        if not text.strip() or text.endswith(UNFINISHED):
            return False
        return sequence.model.encode_span(text) == tuple(ids)

    return add_word(Span(sequence.root), rules, enough=decodable)
