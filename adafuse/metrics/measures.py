"""What merged traces say of a run: words per round, and what decoding cost."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from adafuse.errors import UserError
from adafuse.metrics.intervals import Estimate, bootstrap, wilson
from adafuse.storage.parquet import iterate_rows, read_arrow, read_metadata, read_rows

_ALWAYS = (1, 2, 3)
_COLUMNS = ["id", "seconds", "stop_reason", "tokens"]


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
    """Count the rounds of a merged trace; empty if none committed a word."""
    import pyarrow.compute as pc

    table = read_arrow(trace, ["benchmark", "run", "rounds"])
    names = {(row["benchmark"], row["run"]) for row in table.drop_columns("rounds").to_pylist()}
    if len(names) > 1:
        raise UserError(f"{str(trace)!r} mixes {sorted(names)}; give the trace of one run")
    words = pc.struct_field(pc.list_flatten(table["rounds"]), "words")
    counts = Counter(words.to_pylist())
    return [share for name in names for share in word_shares(*name, counts)]


def word_shares(benchmark: str, run: str, counts: Counter[int]) -> list[WordShare]:
    """Return the share of each number of words, 1, 2 and 3 always among them.

    `counts` has the rounds by the number of words that they committed.
    """
    n = counts.total() - counts[0]
    if not n:
        return []
    shares = []
    for words in sorted({*_ALWAYS, *counts} - {0}):
        rounds = counts[words]
        low, high = wilson(rounds, n)
        percent = 100 * rounds / n, 100 * low, 100 * high
        shares.append(WordShare(benchmark, run, words, rounds, n, *percent, counts[0]))
    return shares


@dataclass(frozen=True, slots=True)
class Cost:
    """A run on a benchmark: `seconds` per example with their 95 % interval (bootstrap).

    `tokens`, `forwards` and `evaluated` (the tokens that these passes ran; None in older traces)
    are means per example over the models together; `errors` counts examples that could
    not be decoded, which are in no mean. `earlier` rows were decoded in an earlier attempt or for
    another run, so that drafts spared other forwards. `agreed` is the share of rounds, in percent,
    in which all models proposed what was committed; None for a single model. All are None where no
    example was decoded. Only the seconds of `timed` runs, which had the machine to themselves, can
    be compared.
    """

    benchmark: str
    run: str
    n: int
    errors: int
    seconds: Estimate | None = None
    quartiles: tuple[float, ...] = ()
    tokens: float | None = None
    forwards: float | None = None
    evaluated: float | None = None
    agreed: float | None = None
    earlier: int = 0
    timed: bool = False


def cost(
    trace: Path, benchmark: str, run: str, *, timed: bool = False, answers: Sequence[Path] = ()
) -> Cost:
    """Summarise what decoding a merged trace cost, with the `answers` that it starts from.

    These are the traces of the models' own texts, whose time is in that of the run already.
    """
    import numpy as np

    rows = read_rows(trace, _COLUMNS)
    shards = [each for path in (trace, *answers) for each in read_metadata(path).get("shards", [])]
    earlier = sum(shard.get("resumed", 0) + shard.get("reused", 0) for shard in shards)
    good = [row for row in rows if row["stop_reason"] != "error"]
    if not good:
        return Cost(benchmark, run, len(rows), len(rows), earlier=earlier, timed=timed)
    seconds = np.array([row["seconds"] for row in good])
    low, high = bootstrap(len(good), lambda chosen: float(seconds[chosen].mean()))
    return Cost(
        benchmark=benchmark,
        run=run,
        n=len(rows),
        errors=len(rows) - len(good),
        seconds=Estimate(float(seconds.mean()), low, high),
        quartiles=tuple(np.quantile(seconds, (0.25, 0.5, 0.75)).tolist()),
        tokens=float(np.mean([sum(row["tokens"]) for row in good])),
        forwards=_mean("forwards", {row["id"] for row in good}, (trace, *answers)),
        evaluated=_mean("evaluated", {row["id"] for row in good}, (trace, *answers)),
        agreed=_agreed(trace, models=len(good[0]["tokens"])),
        earlier=earlier,
        timed=timed,
    )


def _mean(column: str, ids: Collection[str], traces: Iterable[Path]) -> float | None:
    """Return the mean of a column over the examples of some ids, of all models and traces added."""
    counts = [
        row.get(column)
        for trace in traces
        for row in iterate_rows(trace, {"id", column})
        if row["id"] in ids
    ]
    return None if None in counts else sum(map(sum, filter(None, counts))) / len(ids)


def _agreed(trace: Path, models: int) -> float | None:
    """Return the share of rounds whose committed candidate has all models as proposers."""
    import pyarrow.compute as pc

    rounds = pc.list_flatten(read_arrow(trace, ["rounds"])["rounds"]).combine_chunks()
    candidates, selected = rounds.field("candidates"), rounds.field("selected")
    chosen = pc.add(candidates.offsets.slice(0, len(candidates)), selected).drop_null()
    if models < 2 or not len(chosen):
        return None
    proposers = pc.list_value_length(candidates.values.field("proposers").take(chosen))
    return 100 * float(pc.mean(pc.equal(proposers, models)).as_py())
