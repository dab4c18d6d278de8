"""How many words a round commits (section 4.3 of the paper)."""

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from adafuse.errors import UserError
from adafuse.scoring.intervals import wilson

_ALWAYS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class WordShare:
    """The rounds of a run on a benchmark that committed `words` words.

    `rounds` of the `n` rounds that committed a word did; `share` and its 95 % interval (Wilson,
    which takes rounds of one text for independent) are in percent. `wordless` rounds committed an
    end and no word, or nothing, and are not in n.
    """

    benchmark: str
    run: str
    words: int
    rounds: int
    n: int
    share: float
    low: float
    high: float
    wordless: int


def words_per_round(trace: Path) -> list[WordShare]:
    """Count the rounds of a merged trace; empty if none committed a word.

    Raises:
        UserError: no trace of adafuse, or one of several runs or benchmarks.
    """
    names, words = _read(trace)
    if len(names) > 1:
        raise UserError(f"{str(trace)!r} mixes {sorted(names)}; give the trace of one run")
    counts = Counter(words)
    return [share for benchmark, run in names for share in word_shares(benchmark, run, counts)]


def word_shares(benchmark: str, run: str, counts: Counter[int]) -> list[WordShare]:
    """Return the share of each number of words; 1, 2 and 3 always have one.

    Args:
        benchmark: name.
        run: name.
        counts: rounds by the number of words that they committed.
    """
    wordless = counts[0]
    n = counts.total() - wordless
    if not n:
        return []
    shares = []
    for words in sorted({*_ALWAYS, *counts} - {0}):
        rounds = counts[words]
        low, high = (100 * end for end in wilson(rounds, n))
        share = 100 * rounds / n
        shares.append(WordShare(benchmark, run, words, rounds, n, share, low, high, wordless))
    return shares


def to_csv(shares: Sequence[WordShare]) -> str:
    """Return a row per benchmark, run and number of words; percent with four decimals."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(WordShare)])
    for share in shares:
        values = astuple(share)
        writer.writerow([f"{v:.4f}" if isinstance(v, float) else v for v in values])
    return text.getvalue()


def _read(trace: Path) -> tuple[set[tuple[str, str]], list[int]]:
    """Return (benchmark, run) of the rows, and the words of each round of all rows."""
    import pyarrow.compute as pc

    from adafuse.workflow.traces import read_arrow

    table = read_arrow(trace, ["benchmark", "run", "rounds"])
    names = zip(table["benchmark"].to_pylist(), table["run"].to_pylist(), strict=True)
    rounds = pc.list_flatten(table["rounds"])
    return set(names), pc.struct_field(rounds, "words").to_pylist()
