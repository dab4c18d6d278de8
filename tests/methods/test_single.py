import pytest
import torch

from adafuse.ensemble import Ensemble
from tests.conftest import toy_path
from tests.methods.test_engines_agree import PROMPTS


@pytest.mark.parametrize("name", ["mistral", "llama", "qwen3", "internlm3"])
def test_single_is_greedy_generate_of_transformers(name):
    ensemble = Ensemble.from_pretrained([toy_path(name)], device="cpu")
    model = ensemble.models[0]
    results = ensemble.generate(PROMPTS, method="single", max_new_tokens=20)
    for prompt, result in zip(PROMPTS, results, strict=True):
        ids = torch.tensor([model.prompt_ids(prompt)])
        with torch.no_grad():
            output = model.network.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=20,
                eos_token_id=sorted(model.end_ids),
                pad_token_id=0,
            )
        new = output[0, ids.shape[1] :].tolist()
        ended = bool(new) and new[-1] in model.end_ids
        kept = new[:-1] if ended else new
        assert result.text == model.anchor(ids[0].tolist()).added(kept)
        assert result.stop_reason == ("eos" if ended else "length")
        assert result.tokens == (len(kept),)


def test_the_text_is_cut_before_a_stop_string():
    ensemble = Ensemble.from_pretrained([toy_path("llama")], device="cpu")
    whole = ensemble.generate(PROMPTS[:1], method="single", max_new_tokens=20)[0].text
    stop = whole.split()[-1][:2]
    cut = ensemble.generate(PROMPTS[:1], method="single", max_new_tokens=20, stop=[stop])[0]
    assert cut.stop_reason == "stop"
    assert cut.text == whole[: whole.find(stop)]
