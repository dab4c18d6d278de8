"""Options of `adafuse generate` alone."""

from pathlib import Path
from typing import Annotated

from adafuse.cli.completion import one_of
from adafuse.cli.options import DECODING, MODELS, PROMPTS, option

_FUSIONS = ("mean_nll", "mixture", "most_confident")

PromptTexts = Annotated[
    list[str] | None,
    option("A prompt, \\n in it a line break; repeatable. Or pipe one in.", "TEXT", PROMPTS),
]
PromptsFile = Annotated[
    Path | None,
    option('JSON lines {"id": ..., "prompt": ...}; - is standard input.', "FILE", PROMPTS),
]
OutFile = Annotated[Path | None, option("The Parquet file to write.", "FILE", PROMPTS)]
RowsAsJson = Annotated[bool, option("Print a line of JSON per prompt.", "", PROMPTS, "--json")]

Tau = Annotated[float | None, option("Margin threshold; margins are 0 to 1.", "X", DECODING)]
MaxWords = Annotated[int | None, option("M, the most words a round.", "N", DECODING)]
Branching = Annotated[int | None, option("B, alternatives where unsure.", "N", DECODING)]
Fusion = Annotated[
    str | None,
    option(
        "mean_nll, mixture or most_confident.", "NAME", DECODING, autocompletion=one_of(*_FUSIONS)
    ),
]
MaxRounds = Annotated[int | None, option("Rounds; no limit by default.", "N", DECODING)]
Stop = Annotated[
    list[str] | None, option("Cut before it, \\n in it a line break; repeatable.", "TEXT", DECODING)
]
Engine = Annotated[
    str,
    option(
        "tree, or reference to check it.",
        "NAME",
        DECODING,
        autocompletion=one_of("tree", "reference"),
    ),
]
Weights = Annotated[
    list[float] | None,
    option("Weights of the models in the fusion, one each; 1 by default.", "X", MODELS),
]
