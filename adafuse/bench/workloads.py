"""What is decoded: prompts of the toy world, long prompts, and long outputs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import adafuse.toy
from adafuse.models.language_model import LanguageModel

ROWS = Path(adafuse.toy.__file__).parent / "benchmarks" / "toy_math.jsonl"


@dataclass(frozen=True, slots=True)
class Workload:
    """Prompts, and how long an answer may get; an `endless` one is never ended by a model."""

    name: str
    prompts: tuple[str, ...]
    max_new_tokens: int
    stop: tuple[str, ...] = ()
    endless: bool = False

    def first(self, count: int) -> "Workload":
        """Return the same with `count` prompts, repeated as often as needed."""
        prompts = (self.prompts * -(-count // len(self.prompts)))[:count]
        return replace(self, prompts=prompts)


def chains(count: int) -> Workload:
    """Return chains of thought: short prompts, about 40 tokens each to write."""
    prompts = [f"Question: {question}\nLet's think step by step\n" for question in _questions()]
    chosen = tuple(prompts[:count])
    return Workload("chains of thought", chosen, 128, stop=("Question:", "\n\n"))


def long_prompts(count: int, tokens: int, model: LanguageModel, new_tokens: int) -> Workload:
    """Return prompts of about `tokens` ids of `model`, each of other words."""
    questions = _questions()
    prompts = tuple(_filled(questions[n:] + questions[:n], tokens, model) for n in range(count))
    return Workload(f"{tokens}-token prompts", prompts, new_tokens, endless=True)


def openings(count: int, tokens: int) -> Workload:
    """Return questions, with `tokens` ids to write each, far beyond an answer."""
    prompts = tuple(f"Question: {question}\n" for question in _questions()[:count])
    return Workload("openings", prompts, tokens, endless=True)


def long_outputs(opened: Sequence[str], tokens: int) -> Workload:
    """Return openings and what was written behind them as prompts, with `tokens` ids to write each.

    Behind an answer models agree less than in it. These texts are past that, so that the first half
    of what is written is like the second, and costs differ by length alone.
    """
    return Workload(f"{tokens}-token outputs", tuple(opened), tokens, endless=True)


def without_end(models: Sequence[LanguageModel]) -> tuple[LanguageModel, ...]:
    """Return the models as ones that go on behind an end token, as `min_new_tokens` makes them."""
    return tuple(replace(model, stop_ids=frozenset()) for model in models)


def _filled(questions: Sequence[str], tokens: int, model: LanguageModel) -> str:
    text = "".join(f"Question: {question}\n" for question in questions)
    text *= -(-tokens // len(model.prompt_ids(text)))
    share = tokens / len(model.prompt_ids(text))
    return text[: int(share * len(text))]


def _questions() -> list[str]:
    lines = ROWS.read_text(encoding="utf-8").split("\n")
    return [json.loads(line)["question"] for line in lines if line]
