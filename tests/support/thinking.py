"""Models that think: chat templates in the two forms of published ones, and texts with thoughts."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from adafuse.models.language_model import LoadedModel
from adafuse.records.result import Chat, Prompt
from tests.conftest import toy_path

_TURNS = (
    "{% for turn in messages %}<|im_start|>{{ turn.role }}\n{{ turn.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
)
SWITCHED = _TURNS + (
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% endif %}{% endif %}"
)
"""The model begins its thoughts itself, unless an empty block is there (Qwen3)."""
OPENED = _TURNS + (
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% else %}<think>\n{% endif %}{% endif %}"
)
"""The prompt begins the thoughts (DeepSeek-R1), unless they are switched off (Qwen3.5)."""
CHANNELS = (
    "{% for turn in messages %}{% if turn.role == 'assistant' %}{% if turn.thinking %}"
    "<|start|>assistant<|channel|>analysis<|message|>{{ turn.thinking }}<|end|>{% endif %}"
    "<|start|>assistant<|channel|>final<|message|>{{ turn.content }}"
    "{% if loop.last %}<|return|>{% else %}<|end|>{% endif %}"
    "{% else %}<|start|>{{ turn.role }}<|message|>{{ turn.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
"""The model thinks in one channel and answers in another (gpt-oss)."""
ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|end|><|start|>assistant<|channel|>final<|message|>"
SPECIAL = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>")
ON, OFF = {"enable_thinking": True}, {"enable_thinking": False}
CHAT = Chat([{"role": "user", "content": "Which city is the capital of Rustan?"}])
THOUGHTS = "<think>\nRustan, no.\nOr yes?\n</think>\n\n"
ANSWER = "Paila is it."


def with_template(name: str, folder: Path, template: str) -> str:
    """Copy a toy model into a folder, with another chat template; return its path.

    With the channels, their special tokens are added.
    """
    copied = shutil.copytree(toy_path(name), folder)
    (copied / "chat_template.jinja").write_text(template)
    if template == CHANNELS:
        tokenizer = AutoTokenizer.from_pretrained(copied)
        tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIAL)})
        tokenizer.save_pretrained(copied)
        network = AutoModelForCausalLM.from_pretrained(copied)
        network.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        network.save_pretrained(copied)
    return str(copied)


def scripted(
    model: LoadedModel, prompt: Prompt, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let a model write a text after a prompt, and then END, whatever its weights are."""
    first = len(model.prompt_ids(prompt)) - 1
    tokenizer = model.tokenizer
    ids = [*tokenizer.encode(text, add_special_tokens=False), next(iter(model.end_ids))]
    forward = model.network.forward

    def write(**given: Any) -> Any:
        output = forward(**given)
        columns = torch.arange(given["input_ids"].shape[1]).expand_as(given["input_ids"])
        places = (given.get("position_ids", columns) - first).clamp(0, len(ids) - 1)
        wanted = torch.tensor(ids)[places]
        output.logits = output.logits.clamp(-5, 5).scatter(-1, wanted[..., None], 20.0)
        return output

    monkeypatch.setattr(model.network, "forward", write)
