"""Two small real models on rows of the real benchmarks: `pytest -m real`.

ADAFUSE_REAL_MODELS is a folder that holds both, as Hugging Face folders. Everything is skipped
where it or the files of the benchmarks are missing.
"""

import os
from functools import cache, lru_cache, wraps
from pathlib import Path

import pytest
import torch
import yaml

from adafuse.config.config import Config
from adafuse.config.reading import parse_config
from adafuse.ensemble import Ensemble
from adafuse.workflow.benchmarks import prepare_benchmark
from tests.conftest import SHARED
from tests.methods.test_engines_agree import METHODS
from tests.support.results import assert_same

ROOT = Path(__file__).parents[2]
MODELS = Path(os.environ.get("ADAFUSE_REAL_MODELS", "none"))
NAMES = ("smollm2-135m-instruct", "gemma-3-270m")
BENCHMARKS = ("natural_questions", "squad", "triviaqa", "gsm8k", "flores_en_de", "flores_de_en")
FEW = {"max_new_tokens": 6}

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        not (MODELS / NAMES[0]).is_dir() or not (SHARED / "benchmarks").is_dir(),
        reason="needs ADAFUSE_REAL_MODELS and the benchmarks' files",
    ),
]


@cache
def small(few_shots: bool = True) -> Config:
    """config/small.yaml on the files of the benchmarks, with one few-shot example at most.

    With one, the prompts of GSM8K are longer than the sliding window of Gemma. Without `few_shots`,
    there are as many as in config/small.yaml.
    """
    values = yaml.safe_load((ROOT / "config/small.yaml").read_text())
    files = yaml.safe_load((ROOT / "tests/real/rows.yaml").read_text())
    for name, entry in files["benchmarks"].items():
        values["benchmarks"][name] |= entry
        if not few_shots:
            continue
        none = name.startswith("flores") or name == "squad"
        values["benchmarks"][name]["shots"]["count"] = 0 if none else 1
    for key, name in zip(values["models"], NAMES, strict=True):
        values["models"][key]["path"] = str(MODELS / name)
    return parse_config(values)


def prompts(benchmark: str, count: int, few_shots: bool = True) -> list[str]:
    return [row.prompt for row in prepare_benchmark(small(few_shots), benchmark).rows[:count]]


def read_once(network: torch.nn.Module) -> None:
    """Let the reference engine read a text once for all methods: they often write the same."""
    plain = network.forward

    @lru_cache(maxsize=200)
    def read(ids: tuple[int, ...], asked: tuple[int, ...]) -> object:
        kept = {"logits_to_keep": torch.tensor(asked)}
        return plain(input_ids=torch.tensor([ids]), use_cache=False, **kept)

    @wraps(plain)
    def forward(*args: object, **given: object) -> object:
        if args or given.keys() != {"input_ids", "use_cache", "logits_to_keep"}:
            return plain(*args, **given)
        return read(tuple(given["input_ids"][0].tolist()), tuple(given["logits_to_keep"].tolist()))

    network.forward = forward


@pytest.fixture(scope="module")
def real_pair() -> Ensemble:
    pair = Ensemble.from_pretrained([str(MODELS / name) for name in NAMES], device="cpu")
    for model in pair.models:
        read_once(model.network)
    return pair


@pytest.mark.parametrize(
    "benchmark", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in BENCHMARKS]
)
@pytest.mark.parametrize(("method", "options"), METHODS)
def test_the_engines_and_batches_agree(real_pair, benchmark, method, options) -> None:
    asked = prompts(benchmark, 5)
    settings = {"method": method, "stop": small().benchmarks[benchmark].stop, **options, **FEW}
    alone = real_pair.generate(asked, batch_size=1, **settings)
    assert_same(alone, real_pair.generate(asked, batch_size=8, **settings), nll=1e-3)
    reference = real_pair.generate(asked[:2], engine="reference", **settings)
    assert_same(alone[:2], reference, nll=1e-3)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_a_single_model_writes_what_generate_writes(real_pair, benchmark, number) -> None:
    model = real_pair.models[number]
    asked = prompts(benchmark, 50)
    single = Ensemble((model,), (1.0,))
    results = single.generate(asked, method="single", max_new_tokens=12, batch_size=8)
    for prompt, result in zip(asked, results, strict=True):
        ids = torch.tensor([model.prompt_ids(prompt)])
        written = model.network.generate(
            ids, do_sample=False, max_new_tokens=12, eos_token_id=sorted(model.end_ids)
        )[0, ids.shape[1] :].tolist()
        kept = [token for token in written if token not in model.end_ids]
        assert result.text == model.anchor(ids[0].tolist()).added(kept)


@pytest.mark.parametrize("method", ["single", "adafuse", "unite"])
@pytest.mark.parametrize("benchmark", ["squad_published", "natural_questions_published"])
def test_no_answer_is_empty_because_of_a_stop_string(real_pair, benchmark, method) -> None:
    ensemble = Ensemble(real_pair.models[:1], (1.0,)) if method == "single" else real_pair
    stop = small().benchmarks[benchmark].stop
    results = ensemble.generate(prompts(benchmark, 8), method=method, stop=stop, max_new_tokens=32)
    assert not [r.text for r in results if r.stop_reason == "stop" and not r.text.strip()]
