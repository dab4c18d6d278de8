"""Writes docs/models.md: `python -m tests.support.architecture_page`; the soak suite compares."""

from pathlib import Path

from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from adafuse.engine.choice import Way, way_of
from tests.support.architectures import tiny_network

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
HEAD = (
    "# Architectures\n\n"
    "Which engine runs a model that AdaFuse loads, for each causal architecture of transformers"
    " 5.23. This page is made by `python -m tests.support.architecture_page`: networks with random"
    " weights, two to four layers, and windows or chunks of 8 tokens where the architecture has"
    " them, are examined as your model is when it is first used. The soak suite checks each line,"
    " and that each network goes on after three prompts of 5 to 30 tokens, alone and together, as"
    " `generate` does without a cache.\n\n"
    "| engine | what it costs |\n| --- | --- |\n"
    "| token tree | each token is read once, all candidates of all examples in one forward pass"
    " ([performance](performance.md)) |\n"
    "| own cache | each token is read once, or twice where a span is committed in part; spans of"
    " the same length share a forward pass ([networks with"
    " states](performance.md#networks-with-states)) |\n"
    "| reference | the whole text is read again for each candidate |\n\n"
    "| model type | engine | because |\n| --- | --- | --- |\n"
)
_READ = {(1, 512): "own cache", (2, 512): "own cache, at least 2 tokens at a time"}


def line(kind: str, way: Way) -> str:
    """The line of a model type in the table."""
    engine = "token tree" if way.tree else "reference"
    if way.layout is not None:
        least, most, ragged = way.reading
        engine = _READ.get((least, most), "own cache, one token at a time")
        engine += "" if ragged else ", texts of equal length together"
    because = way.obstacles[0] if way.obstacles else ""
    if because.startswith("log-probabilities differ"):
        because = "a tree of tokens is not exact"
    elif ":" in because:
        because = "it cannot read a tree of tokens"
    return f"| {kind} | {engine} | {because} |\n"


def main() -> None:
    """Write the page."""
    from tests.engine.test_architectures import member

    lines, missing = [], []
    for kind in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        try:
            network = tiny_network(kind)
        except ValueError:
            missing.append(kind)
        else:
            lines.append(line(kind, way_of(member(network))))
    last = "\nNot tried, as they need more settings than a size: " + ", ".join(missing) + ".\n"
    PAGE.write_text(HEAD + "".join(lines) + last, encoding="utf-8")


if __name__ == "__main__":
    main()
