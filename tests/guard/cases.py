"""What the record decodes through Python: every method and its options, and every toy run."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import adafuse.toy
from adafuse import Ensemble
from adafuse.config.reading import read_config
from adafuse.methods.selections import SELECTIONS
from adafuse.workflow.benchmarks import prepare_benchmark
from tests.workflow.conftest import ROOT

TOY = Path(adafuse.toy.__file__).parent
PAIR = ("mistral", "llama")
FUSION = ("mean_nll", "mixture", "most_confident")
BLENDER = {"ranker": str(TOY / "models/pair_ranker"), "fuser": str(TOY / "models/gen_fuser")}

CASES: list[tuple[str, dict[str, Any]]] = [
    *[("adafuse", {"fusion": rule, "branching": b}) for rule in FUSION for b in (1, 3)],
    *[("adafuse", {"tau": tau}) for tau in (0.0, 0.3, 1.1)],
    ("adafuse", {"max_words": 1, "max_word_tokens": 2}),
    ("adafuse", {"max_rounds": 1}),
    ("adafuse", {"max_new_tokens": 2}),
    ("adafuse", {"stop": [" "]}),
    ("adafuse", {"engine": "reference", "branching": 2}),
    *[("fixed_length", {"words": words}) for words in (1, 2, 3)],
    *[("fixed_length", {"words": 2, "fusion": rule}) for rule in FUSION[1:]],
    *[("beam_scaling", {"width": width}) for width in (1, 3)],
    ("beam_scaling", {"fusion": "mixture", "beam_tokens": 2}),
    *[("unite", {"primary": model}) for model in (0, 1)],
    ("unite", {"top_k": 2}),
    *[("unite", {"duplicates": what}) for what in ("keep", "zero")],
    ("unite", {"normalise": "vocabulary"}),
    ("unite", {"commit": "first_token"}),
    ("gac", {}),
    *[("gac", {"threshold": 0.5, "primary": model}) for model in (0, 1)],
    *[("deepen", {"main": model}) for model in (0, 1)],
    ("deepen", {"steps": 2, "top": 64, "reduction": "sum"}),
    ("bytewise", {}),
    ("bytewise", {"prune": 0.01}),
    ("sweetspan", {}),
    ("sweetspan", {"words": 2, "filter_ratio": None}),
    ("sweetspan", {"filter_ratio": 1.5}),
    ("cool_fusion", {}),
    ("cool_fusion", {"rerank": True}),
    ("cool_fusion", {"segments": "shortest"}),
    ("specfuse", {}),
    ("specfuse", {"votes": "mean_nll", "window": 4, "hedge": 0.5}),
    ("specfuse", {"sampling": True, "seed": 1}),
    ("rerank", {}),
    ("rerank", {"score": "mean_perplexity"}),
    ("llm_blender", {**BLENDER, "fused_tokens": 12}),
    ("llm_blender", {**BLENDER, "rank_only": True}),
    ("llm_blender", {**BLENDER, "rank_only": True, "bubble": True}),
]
"""What the pair decodes; the first of each method also one prompt at a time."""

OTHERS: list[tuple[tuple[str, ...], tuple[float, ...] | None, str, dict[str, Any]]] = [
    (("mistral",), None, "single", {}),
    (("llama",), None, "single", {"max_word_tokens": 2}),
    (("llama", "mistral"), None, "adafuse", {}),
    (PAIR, (3.0, 1.0), "adafuse", {"branching": 2}),
    (PAIR, (3.0, 1.0), "unite", {}),
    *[
        (("mistral", "llama", "qwen3", "internlm3"), None, method, options)
        for method, options in [
            ("adafuse", {"branching": 3}),
            ("gac", {}),
            ("unite", {}),
            ("specfuse", {"hedge": 0.5}),
            ("rerank", {}),
        ]
    ],
]
"""Other models or weights: the models, what loads them, the method and its options."""


def prompts() -> list[str]:
    """Two rows of each toy benchmark, and text of another kind."""
    texts = []
    for file in sorted(TOY.glob("benchmarks/*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines()[3:14:10]:
            texts.append(f"Question: {json.loads(line)['question']}\nAnswer:")
    return [*texts, "naïve 漢字 🙂 and"]


Runs = Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]
"""Names with the rows that were decoded, each with its id."""


RECORDED = {("gac", "primary"): "gate"}
"""Options that the record holds by an earlier name."""


def of_methods() -> Runs:
    """Yield each case with what it makes of the prompts."""
    pair, seen = loaded(PAIR), set[str]()
    for method, options in CASES:
        if method not in seen:
            yield _case(pair, "pair, batch 1", prompts()[::4], method, {**options, "batch_size": 1})
        seen.add(method)
        yield _case(pair, "pair, batch 8", prompts(), method, {**options, "batch_size": 8})
    for models, weights, method, options in OTHERS:
        title = "+".join(models) + (f", weights {weights}" if weights else "")
        yield _case(loaded(models, weights), title, prompts(), method, options)
    unusual = ["", "Question: " * 5000]
    yield _case(pair, "an empty and an overlong prompt", unusual, "adafuse", {})


def of_runs() -> Runs:
    """Yield the runs of config/toy.yaml that the demo lacks, on two rows of each benchmark."""
    config = read_config(ROOT / "config/toy.yaml")
    rows_of = {}
    for name in config.benchmarks:
        rows = prepare_benchmark(config, name).rows
        rows_of[name] = rows[:: len(rows) // 2][:2]
    others = config.runs.keys() - set(config.main_runs)
    runs = {
        k: run for k, run in config.runs.items() if k in others and run.method not in SELECTIONS
    }
    for (name, run), (benchmark, rows) in product(runs.items(), rows_of.items()):
        ensemble, settings = loaded(tuple(run.models), run.weights), config.benchmarks[benchmark]
        results = ensemble.generate(
            [row.prompt for row in rows],
            method=run.method,
            questions=[row.question for row in rows],
            stop=settings.stop,
            max_new_tokens=settings.max_new_tokens,
            **run.options,
        )
        ids = [row.id for row in rows]
        yield f"{benchmark}/{name}", [*zip(ids, map(asdict, results), strict=True)]


@cache
def loaded(models: tuple[str, ...], weights: tuple[float, ...] | None = None) -> Ensemble:
    """Return an ensemble of toy models."""
    paths = [str(TOY / "models" / name) for name in models]
    return Ensemble.from_pretrained(paths, device="cpu", weights=weights)


def _case(
    ensemble: Ensemble, title: str, texts: list[str], method: str, options: dict[str, Any]
) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    settings = {"max_new_tokens": 16, "stop": ["\n"], **options}
    results = ensemble.generate(texts, method=method, **settings)
    hidden = ("batch_size", *BLENDER)
    shown = [
        f"{RECORDED.get((method, key), key)}={value}"
        for key, value in options.items()
        if key not in hidden
    ]
    rows = [(str(number), asdict(result)) for number, result in enumerate(results)]
    return " ".join([f"{title}: {method}", *shown]), rows
