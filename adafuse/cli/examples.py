"""An example or two of each command, as help and docs/command-line.md show them."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "adafuse": (
        "adafuse doctor --model A --model B",
        'adafuse generate --model A --model B --prompt "Question: who?\\nAnswer:"',
    ),
    "generate": (
        'adafuse generate --model A --model B --prompt "Q: who?\\nA:" --stop "\\n"',
        "cat prompt.txt | adafuse generate --model A --model B > text.txt",
        "adafuse generate --model A --model B --prompts in.jsonl --out out.parquet",
        "adafuse generate --model A --method single --prompts - --json < in.jsonl",
    ),
    "show": (
        "adafuse show out.parquet --list",
        "adafuse show out.parquet --id X --id Y --round 3",
        "adafuse show out.parquet --json",
    ),
    "methods": ("adafuse methods", "adafuse methods adafuse --json"),
    "score": (
        "adafuse score --benchmark gsm8k --predictions p.jsonl \\\n"
        "    --references gsm8k.jsonl --out score.json",
    ),
    "audit": (
        "adafuse audit --benchmark squad --predictions p.jsonl \\\n"
        "    --references squad.jsonl --csv audit.csv",
    ),
    "report": (
        "adafuse report results",
        "adafuse report one.parquet two.parquet --out compared",
    ),
    "status": ("adafuse status", "adafuse status results --json"),
    "doctor": (
        "adafuse doctor",
        "adafuse doctor --model A --model B --device cuda:0 --batch-size 16",
    ),
    "bench": ("adafuse bench --repeats 3", "adafuse bench --model A --model B --json"),
}
"""Lines are short enough for a terminal of 80 columns."""


def epilog(command: str) -> str:
    """Return the examples of a command as the end of its help."""
    return "Examples\n\n" + "\n".join(f"  {line}" for line in EXAMPLES[command])
