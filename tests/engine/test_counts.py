"""What a result says that its text cost is what the networks ran."""

import pytest
import torch

PROMPT = "The old dog"


@pytest.mark.parametrize("engine", ["tree", "reference"])
def test_evaluated_counts_the_tokens_after_the_prompt_that_were_run(pair, monkeypatch, engine):
    settings = {"branching": 2, "max_new_tokens": 12, "drafts": []}
    settings |= {"engine": engine, "batch_size": 1}
    pair.generate([PROMPT], **settings)  # a model is probed the first time
    ran = [0] * len(pair.models)
    for place, model in enumerate(pair.models):

        def forward(*, _place=place, _model=model, _forward=model.network.forward, **given):
            ids = given["input_ids"]
            positions = given.get("position_ids", torch.arange(ids.shape[1]))
            ran[_place] += int((positions >= len(_model.prompt_ids(PROMPT))).sum())
            return _forward(input_ids=ids, **{k: v for k, v in given.items() if k != "input_ids"})

        monkeypatch.setattr(model.network, "forward", forward)
    (result,) = pair.generate([PROMPT], **settings)
    assert list(result.evaluated) == ran
    assert all(count > tokens for count, tokens in zip(ran, result.tokens, strict=True))
