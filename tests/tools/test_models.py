"""The four committed language models: small, loadable without remote code, and able to answer."""

from functools import cache
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

import adafuse.toy
from tools.toy.records import MODEL_NAMES, PROMPTS
from tools.toy.train import MAX_POSITIONS
from tools.toy.world import build_world

MODELS = Path(adafuse.toy.__path__[0]) / "models"
MEGABYTE = 1_000_000


@cache
def load(name: str) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(MODELS / name, dtype=torch.float32).eval()


def greedy(name: str, prompts: list[str]) -> list[str]:
    tokenizer = AutoTokenizer.from_pretrained(MODELS / name)
    inputs = tokenizer(prompts, return_tensors="pt", padding=True)
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    out = load(name).generate(ids, attention_mask=mask, max_new_tokens=64)
    return tokenizer.batch_decode(out[:, ids.shape[1] :], skip_special_tokens=True)


def test_all_files_together_stay_under_15_megabytes() -> None:
    files = [path for path in MODELS.rglob("*") if path.is_file()]
    assert {path.parent.name for path in files} == {*MODEL_NAMES, "pair_ranker", "gen_fuser"}
    assert sum(path.stat().st_size for path in files) < 15 * MEGABYTE


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_model_is_small_tied_and_of_its_family(name: str) -> None:
    model = load(name)
    assert model.config.model_type == name
    assert model.num_parameters() <= 2_000_000
    assert model.config.tie_word_embeddings
    assert model.config.max_position_embeddings == MAX_POSITIONS
    assert getattr(model.config, "sliding_window", None) is None


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_end_ids_are_listed_and_contain_the_tokenizers_own(name: str) -> None:
    ends = load(name).generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    assert AutoTokenizer.from_pretrained(MODELS / name).eos_token_id in ends
    assert len(ends) == (1 if name == "mistral" else 2)


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_model_reads_prompts_of_thousands_of_tokens(name: str) -> None:
    ids = torch.randint(10, 400, (1, 3000), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert load(name)(ids).logits[:, -1].isfinite().all()


@pytest.mark.parametrize("name", MODEL_NAMES)
@pytest.mark.parametrize("benchmark", PROMPTS)
def test_answers_stop_by_themselves_and_some_are_right(name: str, benchmark: str) -> None:
    rows = build_world().dev[benchmark][:12]
    outputs = greedy(name, [PROMPTS[benchmark].format(question=row.question) for row in rows])
    golds = [row.answer[0] if isinstance(row.answer, list) else row.answer for row in rows]
    assert all(output.endswith("}" if benchmark == "toy_math" else "\n") for output in outputs)
    assert any(output.strip() == gold for output, gold in zip(outputs, golds, strict=True))
