"""How good the toy ranker and fuser are, on the development rows."""

from pathlib import Path

import torch

import adafuse.toy
from adafuse.ensemble import Ensemble
from adafuse.methods.llm_blender.networks import load_pair_ranker
from adafuse.models.spec import ModelEntry
from adafuse.records.result import Result
from tools.toy.records import DEFAULT_PAIR, PROMPTS, Row
from tools.toy.world import build_world

MODELS = Path(adafuse.toy.__path__[0]) / "models"


def is_right(row: Row, text: str) -> bool:
    """Whether an answer is the row's own; of a chain of thought only the number counts."""
    accepted = row.answer if isinstance(row.answer, list) else [row.answer]
    return any(_last(text) == _last(answer) for answer in accepted)


def own(result: Result, model: int) -> str:
    """What a model of the ensemble wrote, from the trace of a blended answer."""
    return next(c.text for c in result.rounds[0].candidates if model in c.proposers)


def picked(result: Result) -> str:
    """The answer that the ranker puts first, from the trace."""
    selected = result.rounds[0].selected
    assert selected is not None
    return result.rounds[0].candidates[selected].text


def measure(name: str, ensemble: Ensemble, folder: Path) -> dict[str, str]:
    """Counts of rows on the development part of a benchmark, each with its n."""
    rows = build_world().dev[name]
    results = ensemble.generate(
        [PROMPTS[name].format(question=row.question) for row in rows],
        method="llm_blender",
        ranker=str(folder / "pair_ranker"),
        fuser=str(folder / "gen_fuser"),
        stop=[] if name == "toy_math" else ["\n"],
        max_new_tokens=96,
    )
    both = list(zip(rows, results, strict=True))
    rights = [[is_right(row, own(result, model)) for model in (0, 1)] for row, result in both]
    one = [pair for pair, right in zip(both, rights, strict=True) if sum(right) == 1]
    return {
        **{
            f"{model} alone": _share([right[number] for right in rights])
            for number, model in enumerate(DEFAULT_PAIR)
        },
        "one of them": _share([any(right) for right in rights]),
        "picked": _share([is_right(row, picked(result)) for row, result in both]),
        "picked of a right and a wrong one": _share([is_right(r, picked(s)) for r, s in one]),
        "preferred to a wrong one": _share(_preferences(name, both, folder)),
        "fused": _share([is_right(row, result.text) for row, result in both]),
    }


def _preferences(name: str, both: list[tuple[Row, Result]], folder: Path) -> list[bool]:
    """Whether each row's own answer is preferred to each wrong one that the models wrote."""
    ranker = load_pair_ranker(ModelEntry(path=str(folder / "pair_ranker")), torch.device("cpu"))
    pairs = []
    for row, result in both:
        gold = row.answer[0] if isinstance(row.answer, list) else row.answer
        prompt = PROMPTS[name].format(question=row.question)
        wrong = [c.text for c in result.rounds[0].candidates if not is_right(row, c.text)]
        pairs += [(prompt, gold, text.strip()) for text in wrong]
    forth = ranker.logits(pairs)
    back = ranker.logits([(prompt, two, one) for prompt, one, two in pairs])
    return [one > two for one, two in zip(forth, back, strict=True)]


def _last(text: str) -> str:
    return text.rpartition("boxed")[2].strip()


def _share(values: list[bool]) -> str:
    return f"{sum(values)}/{len(values)}"


def load_pair() -> Ensemble:
    """Load the default pair of language models, whose answers are ranked and fused."""
    return Ensemble.from_pretrained([str(MODELS / name) for name in DEFAULT_PAIR], device="cpu")
