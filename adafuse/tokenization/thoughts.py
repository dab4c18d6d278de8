"""What a model thinks before it answers: where that ends, and which prompts ask for it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from jinja2 import TemplateError

from adafuse.errors import UserError
from adafuse.records.result import Chat, Prompt, Turn
from adafuse.tokenization.prompts import prompt_ids, thought_marks, variable_names

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from adafuse.tokenization.text import ModelTokenizer

_SWITCH = re.compile("think|reason")
_TAIL = 32
"""So many ids of a prompt hold the marks that it ends with."""


@dataclass(frozen=True, slots=True)
class Thoughts:
    """The marks `begin` and `end` of thoughts; a prompt that is `opened` ends with `begin`.

    After another prompt, a text that does not begin with `begin` has no thoughts.
    """

    begin: str
    end: str
    opened: bool = False

    def length(self, text: str) -> int:
        """Return how many characters of a text come before its answer: all if that is missing."""
        if not (self.opened or text.lstrip().startswith(self.begin)):
            return 0
        found = text.find(self.end)
        answer = text[found + len(self.end) :].lstrip() if found >= 0 else ""
        return len(text) - len(answer)

    def answered(self, text: str) -> bool:
        """Whether a text holds some of its answer."""
        return self.length(text) < len(text)

    def split(self, text: str, *, whole: bool) -> tuple[str, str]:
        """Return thoughts and answer, without marks; what may become a mark waits for the `whole`.

        Of a text that grows, both grow.
        """
        bare = text.lstrip()
        may_begin = len(bare) < len(self.begin) and self.begin.startswith(bare)
        if may_begin and not (whole or self.opened):
            return "", ""
        if not (length := self.length(text)):
            return "", text
        bare = bare if self.opened else bare.removeprefix(self.begin)
        thoughts, found, _ = bare.partition(self.end)
        if not (found or whole):
            sizes = range(min(len(self.end) - 1, len(thoughts)), 0, -1)
            begun = next((n for n in sizes if self.end.startswith(thoughts[-n:])), 0)
            thoughts = thoughts[: len(thoughts) - begun]
        return thoughts.strip(), text[length:]


@lru_cache(64)
def switch(tokenizer: "PreTrainedTokenizerBase", template: str, end: str) -> str | None:
    """Return the variable of a chat template that, if false, ends thoughts in the prompt."""
    for name in sorted(filter(_SWITCH.search, variable_names(template))):
        chat = Chat((Turn("user", "A"),), chat_template_kwargs={name: False})
        try:
            ids = prompt_ids(tokenizer, chat, chat=True)
        except (TemplateError, TypeError, ValueError, UserError):  # a template without such chats
            continue
        if _tail(tokenizer, ids).endswith(end):
            return name
    return None


def shared_thoughts(
    models: Sequence["ModelTokenizer"], prompt: Prompt, ids: Sequence[Sequence[int]]
) -> Thoughts | None:
    """Return the thoughts that a fused text may begin with; `ids` are the prompt's of each model.

    Raises:
        UserError: after this prompt, one model thinks and another one does not, or in another form.
    """
    each = [_thoughts(model, prompt, own) for model, own in zip(models, ids, strict=True)]
    first = next((own for own in each if own is not None), None)
    if first is None:
        return None
    thinker = models[each.index(first)]
    pairs = [*zip(models, each, strict=True)]
    switches = {m.name: name for m, own in pairs if own and (name := _switch(m, own.end))}
    sure = first.opened or bool(switches)
    for model, own in pairs:
        if own != first and (own is not None or sure):
            how = "does not" if own is None else "marks its thoughts otherwise"
            raise UserError(
                f"{thinker.name} thinks before it answers and {model.name} {how}, so they cannot"
                f" write one text; {_fix(switches)}"
            )
    return first


def _fix(switches: Mapping[str, str]) -> str:
    """Say how models stop to think, by the variables of their chat templates."""
    if not switches:
        return "fuse models that think in the same form"
    given = [f"{{{name}: false}} for {model}" for model, name in switches.items()]
    return f"set chat_template_kwargs to {' and to '.join(given)}"


def _switch(model: "ModelTokenizer", end: str) -> str | None:
    return switch(model.tokenizer, str(model.tokenizer.get_chat_template()), end)


def _thoughts(model: "ModelTokenizer", prompt: Prompt, ids: Sequence[int]) -> Thoughts | None:
    template = getattr(model.tokenizer, "chat_template", None)
    if not template or not (model.chat or isinstance(prompt, Chat)):
        return None
    begin, end = thought_marks(model.tokenizer, model.thoughts) or ("", "")
    if not begin:
        return None
    if isinstance(prompt, Chat) and prompt.continues:
        opened = begin in prompt.turns[-1].content.rpartition(end)[2]
        return Thoughts(begin, end, opened) if opened else None
    text = _tail(model.tokenizer, ids)
    return None if text.endswith(end) else Thoughts(begin, end, text.endswith(begin))


def _tail(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids[-_TAIL:]), skip_special_tokens=False)).rstrip()
