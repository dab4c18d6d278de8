"""How a prompt becomes the ids of one model: raw text or its own chat template."""

import logging
from collections.abc import Callable, Sequence
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from jinja2 import TemplateError

from adafuse.errors import UserError
from adafuse.records import Chat, Prompt, Turn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)
TextT = TypeVar("TextT")

SAMPLED = 8
"""About this many prompts are compared."""
WORTH_SHARING = 16
"""Fewer ids than this are computed again."""


def prompt_ids(tokenizer: "PreTrainedTokenizerBase", prompt: Prompt, *, chat: bool) -> list[int]:
    """Return the ids of `prompt`, with exactly one start token where the tokenizer adds one.

    Raw text gets what the tokenizer gives by default, unless `chat` makes it what a user says. A
    chat template renders the start token as text or leaves it out, so it is put in front or
    reduced to one. An empty text without a start token begins where another text ended.
    """
    if isinstance(prompt, str) and not chat:
        return list(tokenizer(prompt)["input_ids"]) or _end_ids(tokenizer, prompt)
    turns = prompt if isinstance(prompt, Chat) else Chat((Turn("user", prompt),))
    return _chat_ids(tokenizer, turns)


def shared_prefix(
    encode: Callable[[Prompt], Sequence[int]], prompts: Sequence[Prompt]
) -> list[int]:
    """Return the ids that all prompts begin with, such as worked examples; none if they are few.

    Some of the prompts stand for all: one that begins otherwise is simply read as a whole.
    """
    if len(prompts) < 2:
        return []
    step = -(-len(prompts) // SAMPLED)
    rows = list(filter(None, (ids_if_any(encode, prompt) for prompt in prompts[::step])))
    if not rows:
        return []
    shared = [column[0] for column in takewhile(_is_one, zip(*rows, strict=False))]
    # The last id of a prompt is never shared: what follows it is asked of each.
    shared = shared[: min(map(len, rows)) - 1]
    return shared if len(shared) >= WORTH_SHARING else []


def ids_if_any(encode: Callable[[TextT], Sequence[int]], text: TextT) -> list[int]:
    """Return the ids of a text; none if its tokenizer fails, which its example will tell."""
    try:
        return list(encode(text))
    except Exception:  # noqa: BLE001 - its example meets it again and tells it
        return []


def _is_one(column: tuple[int, ...]) -> bool:
    return len(set(column)) == 1


def check_chat(tokenizer: "PreTrainedTokenizerBase", name: str) -> None:
    """Refuse chat formatting for a model that has no template."""
    if not getattr(tokenizer, "chat_template", None):
        raise UserError(f"model {name!r} has no chat template; run it without chat formatting")


def start_ids(tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Return the start token that this tokenizer puts before a text, as a list of none or one."""
    first = list(tokenizer("a")["input_ids"])[:1]
    return first if first and first[0] == tokenizer.bos_token_id else []


def _end_ids(tokenizer: "PreTrainedTokenizerBase", prompt: str) -> list[int]:
    end = tokenizer.eos_token_id
    return [end] if isinstance(end, int) and not prompt else []


def _chat_ids(tokenizer: "PreTrainedTokenizerBase", chat: Chat) -> list[int]:
    text = _rendered(tokenizer, chat)
    ids = list(tokenizer.encode(text, add_special_tokens=False))
    start = start_ids(tokenizer) or ids[:1] * (ids[:1] == [tokenizer.bos_token_id])
    while start and ids[:1] == start:
        ids = ids[1:]
    return start + ids


def _rendered(tokenizer: "PreTrainedTokenizerBase", chat: Chat) -> str:
    """Return the text of a chat; a template without a system turn gets its text from the user."""
    try:
        return _templated(tokenizer, chat)
    except TemplateError:
        joined = _without_system(chat)
        if joined == chat:
            raise
        text = _templated(tokenizer, joined)
    _tell_joined(tokenizer.name_or_path)
    return text


def _templated(tokenizer: "PreTrainedTokenizerBase", chat: Chat) -> str:
    said: list[dict[str, Any]] = [{"role": t.role, "content": t.content} for t in chat.turns]
    text = tokenizer.apply_chat_template(
        said,
        tokenize=False,
        add_generation_prompt=not chat.continues,
        continue_final_message=chat.continues,
    )
    assert isinstance(text, str)
    return text


def _without_system(chat: Chat) -> Chat:
    """Put what the system says in front of what the user says first."""
    roles = [turn.role for turn in chat.turns[:2]]
    if roles != ["system", "user"]:
        return chat
    system, user, *others = chat.turns
    first = Turn("user", f"{system.content}\n\n{user.content}")
    return Chat((first, *others), chat.continues)


@cache
def _tell_joined(name: str) -> None:
    logger.warning(
        "the chat template of %s takes no system turn; its text goes before the user's first turn",
        name,
    )
