"""How a prompt becomes the ids of one model: raw text or its own chat template."""

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from transformers import PreTrainedTokenizerBase

from adafuse.errors import UserError

if TYPE_CHECKING:
    from adafuse.models.language_model import LanguageModel

SAMPLED = 8
"""About this many prompts are compared."""
WORTH_SHARING = 16
"""Fewer ids than this are computed again."""


def prompt_ids(tokenizer: PreTrainedTokenizerBase, prompt: str, *, chat: bool) -> list[int]:
    """Return the ids of `prompt`, with exactly one start token where the tokenizer adds one.

    Raw text gets what the tokenizer gives by default. A chat template renders the start token as
    text or leaves it out, so it is put in front or reduced to one.
    """
    return _chat_ids(tokenizer, prompt) if chat else list(tokenizer(prompt)["input_ids"])


def shared_prefix(model: "LanguageModel", prompts: Sequence[str]) -> list[int]:
    """Return the ids that all prompts begin with, such as worked examples; none if they are few.

    Some of the prompts stand for all: one that begins otherwise is simply read as a whole.
    """
    if len(prompts) < 2:
        return []
    step = -(-len(prompts) // SAMPLED)
    rows = list(filter(None, (ids_if_any(model, prompt) for prompt in prompts[::step])))
    if not rows:
        return []
    shared = [column[0] for column in takewhile(_is_one, zip(*rows, strict=False))]
    # The last id of a prompt is never shared: what follows it is asked of each.
    shared = shared[: min(map(len, rows)) - 1]
    return shared if len(shared) >= WORTH_SHARING else []


def ids_if_any(model: "LanguageModel", prompt: str) -> list[int]:
    """Return the ids of a prompt; none if its tokenizer fails, which its example will tell."""
    try:
        return model.prompt_ids(prompt)
    except Exception:  # noqa: BLE001 - its example meets it again and tells it
        return []


def _is_one(column: tuple[int, ...]) -> bool:
    return len(set(column)) == 1


def check_chat(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """Refuse chat formatting for a model that has no template."""
    if not getattr(tokenizer, "chat_template", None):
        raise UserError(f"model {name!r} has no chat template; run it without chat formatting")


def start_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the start token that this tokenizer puts before a text, as a list of none or one."""
    first = list(tokenizer("a")["input_ids"])[:1]
    return first if first and first[0] == tokenizer.bos_token_id else []


def _chat_ids(tokenizer: PreTrainedTokenizerBase, prompt: str) -> list[int]:
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
    )
    ids = list(tokenizer.encode(text, add_special_tokens=False))
    start = start_ids(tokenizer) or ids[:1] * (ids[:1] == [tokenizer.bos_token_id])
    while start and ids[:1] == start:
        ids = ids[1:]
    return start + ids
