"""Predictions made from the real benchmark files by seeded rules, and what becomes of them.

`python -m tests.support.derived` writes the golden counts again; read the difference before you
keep it.
"""

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

from adafuse.benchmarks.rows import Row, read_rows
from adafuse.metrics.published_scorer import MATCHERS
from adafuse.metrics.registry import SCORERS
from adafuse.metrics.scorer import Prediction

BENCHMARKS = Path(__file__).parents[3] / "shared" / "data" / "benchmarks"
GOLDEN = Path(__file__).parents[1] / "metrics" / "golden" / "derived.json"
FILES = {
    "nq": "natural_questions/nq_open_test3610.jsonl",
    "triviaqa": "triviaqa/triviaqa_wikipedia_test6000.jsonl",
    "squad": "squad/squad_2500.jsonl",
    "gsm8k": "gsm8k/gsm8k_test1319_cleaned.jsonl",
}
TRANSLATIONS = (
    "flores/flores_eng2deu_qa.devtest.jsonl",
    "flores/flores_deu2eng_qa.devtest.jsonl",
)
PER_RULE = 75  # rows a rule and file: 4 files x 10 rules x 75 = 3,000 predictions
SEED = 20240601

Rule = Callable[[str, str], str]

# What each rule makes of a gold answer and of another row's, and what is right about the result.
RULES: dict[str, tuple[str, Rule]] = {
    "gold": ("The first gold answer: right.", lambda gold, other: gold),
    "article": ("'the ' before it: right.", lambda gold, other: f"the {gold}"),
    "shouted": ("Upper case with an exclamation mark: right.", lambda g, o: f"{g.upper()}!"),
    "first_word": (
        "Only its first word: right where the answer has no other.",
        lambda gold, other: (gold.split() or [""])[0],
    ),
    "sentence": (
        "Inside a sentence with a number: wrong for exact match.",
        lambda gold, other: f"there were 7 of them, {gold}, they say",
    ),
    "other": ("The answer of another row: wrong, bar coincidence.", lambda gold, other: other),
    "one": ("'1': wrong, bar coincidence.", lambda gold, other: "1"),
    "empty": ("Nothing: wrong.", lambda gold, other: ""),
    "negated": (
        "'not ' before it: wrong, but a number still counts.",
        lambda g, o: f"not {g}",
    ),
    "unknown": ("'I do not know.': wrong.", lambda gold, other: "I do not know."),
}


@cache
def rows(task: str) -> tuple[Row, ...]:
    """All rows of a task's real file."""
    return read_rows(BENCHMARKS / FILES[task])


def examples(task: str, rule: str) -> list[Prediction]:
    """The predictions of one rule on the seeded sample of a file; GSM8K gives its number only."""
    draw = random.Random(f"{SEED} {task}")
    all_rows = rows(task)
    chosen = draw.sample(all_rows, PER_RULE)
    others = draw.sample(all_rows, PER_RULE)
    derive = RULES[rule][1]
    return [
        Prediction(row.id, derive(_answer(task, row), _answer(task, other)), row.answers)
        for row, other in zip(chosen, others, strict=True)
    ]


def _answer(task: str, row: Row) -> str:
    gold = row.answers[0]
    return gold.rsplit(" ", 1)[1] if task == "gsm8k" else gold


def counts(task: str, rule: str) -> dict[str, int]:
    """How many are right under each protocol, and by which published rule."""
    made = examples(task, rule)
    right = {
        name: sum(outcome.value == 1 for outcome in SCORERS[task].score(name, made).outcomes)
        for name in ("strict", "published")
    }
    matcher = MATCHERS[task]
    accepted = [matcher.rule(each.text, each.answers) for each in made]
    return {"n": len(made), **right, **{name: accepted.count(name) for name in matcher.rules}}


def all_counts() -> dict[str, dict[str, dict[str, int]]]:
    """Counts by task and rule."""
    return {task: {rule: counts(task, rule) for rule in RULES} for task in FILES}


if __name__ == "__main__":
    told = {name: sentence for name, (sentence, _) in RULES.items()}
    GOLDEN.write_text(json.dumps({"rules": told, "counts": all_counts()}, indent=1) + "\n")
