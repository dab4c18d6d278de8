"""How a prompt becomes the ids of one model: raw text or its own chat template."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from adafuse.errors import UserError
from adafuse.records import Chat, Prompt, Turn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

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
        end = tokenizer.eos_token_id
        ends = [end] if isinstance(end, int) and not prompt else []
        return list(tokenizer(prompt)["input_ids"]) or ends
    turns = prompt if isinstance(prompt, Chat) else Chat((Turn("user", prompt),))
    ids = list(tokenizer.encode(_rendered(tokenizer, turns), add_special_tokens=False))
    start = start_ids(tokenizer) or ids[:1] * (ids[:1] == [tokenizer.bos_token_id])
    while start and ids[:1] == start:
        ids = ids[1:]
    return start + ids


def shared_prefix(
    encode: Callable[[Prompt], Sequence[int]], prompts: Sequence[Prompt]
) -> list[int]:
    """Return the ids that all prompts begin with, such as few-shot examples; none if they are few.

    Some of the prompts stand for all: one that begins otherwise is simply read as a whole.
    """
    if len(prompts) < 2:
        return []
    step = -(-len(prompts) // SAMPLED)
    rows = [ids for prompt in prompts[::step] if (ids := ids_if_any(encode, prompt))]
    # The last id of a prompt is never shared: every example needs what follows it.
    columns = zip(*(ids[:-1] for ids in rows), strict=False)
    shared = [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]
    return shared if len(shared) >= WORTH_SHARING else []


def common(left: Sequence[object], right: Sequence[object]) -> int:
    """Return how many ids, or letters, both begin with."""
    pairs = zip(left, right, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def ids_if_any(encode: Callable[[Any], Sequence[int]], text: object) -> list[int]:
    """Return the ids of a text; none if its tokenizer fails."""
    try:
        return list(encode(text))
    except Exception:  # noqa: BLE001 - its example meets it again and reports it
        return []


def check_chat(tokenizer: "PreTrainedTokenizerBase", name: str) -> None:
    """Refuse chat formatting for a model that has no template."""
    if not getattr(tokenizer, "chat_template", None):
        raise UserError(
            f"model {name!r} has no chat template; run it without chat formatting, on prompts"
            " that are texts"
        )


def start_ids(tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Return the start token that this tokenizer puts before a text, as a list of none or one."""
    first = list(tokenizer("a")["input_ids"])[:1]
    return first if first and first[0] == tokenizer.bos_token_id else []


def turn_end(tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Return the added token by which a chat template ends an assistant's turn, if there is one."""
    turns = (Turn("user", "A"), Turn("assistant", "Answer"))
    try:
        text = _templated(tokenizer, turns) if tokenizer.chat_template else ""
    except (TemplateError, TypeError, ValueError):  # a template that takes no such chat
        return []
    ids = tokenizer.encode(text.rpartition("Answer")[2].lstrip(), add_special_tokens=False)
    return [index for index in ids[:1] if index in tokenizer.added_tokens_decoder]


def _rendered(tokenizer: "PreTrainedTokenizerBase", chat: Chat) -> str:
    """Return the text of a chat; where its template takes no system turn, the user says that."""
    try:
        return _templated(tokenizer, chat.turns, chat.continues)
    except TemplateError:
        if [turn.role for turn in chat.turns[:2]] != ["system", "user"]:
            raise
        system, user, *others = chat.turns
        first = Turn("user", f"{system.content}\n\n{user.content}")
        text = _templated(tokenizer, [first, *others], chat.continues)
    _warn_of_joined_turns(tokenizer.name_or_path)
    return text


def _templated(
    tokenizer: "PreTrainedTokenizerBase", turns: Sequence[Turn], continues: bool | None = None
) -> str:
    """Return the rendered turns: the last is continued, or answered, or neither if that is None."""
    messages: list[dict[str, Any]] = [asdict(turn) for turn in turns]
    return str(
        tokenizer.apply_chat_template(
            messages,
            tokenize=False,
            add_generation_prompt=continues is False,
            continue_final_message=bool(continues),
        )
    )


@cache
def _warn_of_joined_turns(name: str) -> None:
    logger.warning(
        "the chat template of %s takes no system turn; its text goes before the user's first turn",
        name,
    )
