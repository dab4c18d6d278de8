"""Which cells of the main table are marked as significant."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from adafuse.comparison.compare import Comparison

Cell = tuple[str, str, str]
"""Protocol, benchmark and run."""

BETTER_THAN_MEMBERS, BETTER_THAN_BASELINE = "*", "†"

LEGEND = (
    f"{BETTER_THAN_MEMBERS} better than each of its models alone; {BETTER_THAN_BASELINE} better"
    " than the best run of another method; both by a paired test with p (Holm) below 0.05 and an"
    " interval of the difference that leaves out 0 (see the paired comparisons)."
)


def marks(comparisons: Iterable[Comparison]) -> Mapping[Cell, str]:
    """Return the marks of each cell that has some."""
    groups: dict[Cell, list[Comparison]] = defaultdict(list)
    for each in comparisons:
        groups[each.protocol, each.benchmark, each.run].append(each)
    found = {cell: _marks(group) for cell, group in groups.items()}
    return {cell: marked for cell, marked in found.items() if marked}


def _marks(group: list[Comparison]) -> str:
    members = [each for each in group if each.role == "member"]
    baselines = [each for each in group if each.role == "best baseline"]
    marked = BETTER_THAN_MEMBERS * (bool(members) and all(map(_better, members)))
    return marked + BETTER_THAN_BASELINE * (bool(baselines) and all(map(_better, baselines)))


def _better(comparison: Comparison) -> bool:
    return comparison.significant and comparison.difference > 0
