"""What a method can ask of a ranker and of a fuser (arXiv 2306.02561)."""

from dataclasses import dataclass

from adafuse.engine.node import Evaluator


@dataclass(eq=False, slots=True)
class RankRequest:
    """All ordered pairs of `candidates` as answers to `source`.

    `matrix[i][j]` is filled in with the logit that i, shown first, is better than j (0 for i = j).
    """

    engine: Evaluator
    source: str
    candidates: tuple[str, ...]
    matrix: list[list[float]] | None = None


@dataclass(eq=False, slots=True)
class FuseRequest:
    """`candidates`, best first, as answers to `source` under an instruction.

    `text` is filled in with the fused answer; `ended` says that the fuser ended it itself.
    """

    engine: Evaluator
    instruction: str
    source: str
    candidates: tuple[str, ...]
    text: str | None = None
    ended: bool = False
