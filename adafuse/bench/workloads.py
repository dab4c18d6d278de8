"""The prompts that `adafuse bench` times, made of the toy world's questions."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import adafuse.toy
from adafuse.models.language_model import LoadedModel

ROWS = Path(adafuse.toy.__file__).parent / "benchmarks"


@dataclass(frozen=True, slots=True)
class Workload:
    """Prompts, and how long an answer may get; an `endless` one is never ended by a model."""

    name: str
    prompts: tuple[str, ...]
    max_new_tokens: int
    stop: tuple[str, ...] = ()
    endless: bool = False


def chains(count: int, most: int = 128) -> Workload:
    """Return chains of thought: short prompts, about 40 tokens each to write, `most` of them."""
    prompts = [f"Question: {question}\nLet's think step by step\n" for question in _questions()]
    return Workload("chains of thought", tuple(prompts[:count]), most, stop=("Question:", "\n\n"))


def translations(count: int, most: int = 64) -> Workload:
    """Return sentences to translate, on whose words the toy models seldom agree."""
    prompts = [f"English: {sentence}\nGerman:" for sentence in _questions("toy_en_de")]
    return Workload("translations", tuple(prompts[:count]), min(most, 64), stop=("\n",))


def long_prompts(count: int, tokens: int, model: LoadedModel, new_tokens: int) -> Workload:
    """Return prompts of about `tokens` ids of `model`, each of other words."""
    questions = _questions()
    prompts = tuple(_filled(questions[n:] + questions[:n], tokens, model) for n in range(count))
    return Workload(f"{tokens}-token prompts", prompts, new_tokens, endless=True)


def openings(count: int, tokens: int) -> Workload:
    """Return questions, with `tokens` ids to write each, far beyond an answer."""
    prompts = tuple(f"Question: {question}\n" for question in _questions()[:count])
    return Workload("openings", prompts, tokens, endless=True)


def _filled(questions: Sequence[str], tokens: int, model: LoadedModel) -> str:
    text = "".join(f"Question: {question}\n" for question in questions)
    text *= -(-tokens // len(model.prompt_ids(text)))
    return text[: int(tokens / len(model.prompt_ids(text)) * len(text))]


def _questions(benchmark: str = "toy_math") -> list[str]:
    lines = (ROWS / f"{benchmark}.jsonl").read_text(encoding="utf-8").split("\n")
    return [json.loads(line)["question"] for line in lines if line]
