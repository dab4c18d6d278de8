"""What a model thinks before it answers: where that ends, and which prompts ask for it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from jinja2 import TemplateError

from adafuse.errors import UserError
from adafuse.records.result import Chat, Prompt, Turn
from adafuse.tokenization.prompts import (
    CHANNEL,
    ids_if_any,
    prompt_ids,
    thought_marks,
    variable_names,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from adafuse.tokenization.text import ModelTokenizer

_SWITCH = re.compile("think|reason")
_TAIL = 32
"""So many ids of a prompt hold the marks that it ends with."""


@dataclass(frozen=True, slots=True)
class Thoughts:
    """The marks `begin` and `end` of thoughts; a prompt that is `opened` ends with `begin`.

    After another prompt, a text that begins with neither has no thoughts. One that begins with
    `end`, or its channel, has the thoughts that are empty.
    """

    begin: str
    end: str
    opened: bool = False

    @property
    def header(self) -> str:
        """What an answer without thoughts may begin with: `end`, of channels only the last."""
        return self.end[max(self.end.rfind(CHANNEL), 0) :]

    def length(self, text: str) -> int:
        """Return how many characters of a text come before its answer: all if that is missing."""
        bare = text.lstrip()
        if bare.startswith(self.header):
            rest = bare.removeprefix(self.header)
        elif self.opened or bare.startswith(self.begin):
            rest = text.partition(self.end)[2]
        else:
            return 0
        return len(text) - len(rest.lstrip())

    def answered(self, text: str) -> bool:
        """Whether a text holds some of its answer."""
        return self.length(text) < len(text)

    def split(self, text: str, *, whole: bool) -> tuple[str, str]:
        """Return thoughts and answer, without marks; what may become a mark waits for the `whole`.

        Of a text that grows, both grow.
        """
        bare = text.lstrip()
        marks = (self.header,) if self.opened else (self.begin, self.header)
        if not whole and any(len(bare) < len(mark) and mark.startswith(bare) for mark in marks):
            return "", ""
        if not (length := self.length(text)):
            return "", text
        if bare.startswith(self.header):
            return "", text[length:]
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
        chat = Chat(ASKED.turns, chat_template_kwargs={name: False})
        try:
            ids = prompt_ids(tokenizer, chat, chat=True)
        except (TemplateError, TypeError, ValueError, UserError):  # a template without such chats
            continue
        if _tail(tokenizer, ids).endswith(end):
            return name
    return None


@dataclass(frozen=True, slots=True)
class Thinking:
    """Whether a model thinks before it answers the user, by its chat template and its settings.

    Thoughts lie between `begin` and `end`. `thinks` is None where only the text shows it; `switch`
    is the variable of the chat template that, if false, ends them in the prompt.
    """

    begin: str
    end: str
    thinks: bool | None
    switch: str | None

    @classmethod
    def of(cls, model: "ModelTokenizer") -> "Thinking | None":
        """Return what can be said of a model; None without a chat template that names marks."""
        marks = thought_marks(model.tokenizer, model.thoughts)
        if marks is None or not getattr(model.tokenizer, "chat_template", None):
            return None
        ids = ids_if_any(model.prompt_ids, ASKED)
        own = _thoughts(model, ASKED, ids)
        sure = own is None or _surely(model, own)
        return cls(*marks, own is not None if sure and ids else None, _switch(model, marks[1]))


ASKED = Chat((Turn("user", "A"),))
"""A conversation as good as any other to see what a chat template does."""


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
    sure = any(own and _surely(model, own) for model, own in pairs)
    for model, own in pairs:
        if own != first and (own is not None or sure):
            how = "does not" if own is None else "marks its thoughts otherwise"
            raise UserError(
                f"{thinker.name} thinks before it answers and {model.name} {how}, so they cannot"
                f" write one text; {_fix(switches)}"
            )
    return first


def check_no_thoughts(models: Sequence["ModelTokenizer"], prompt: Prompt) -> None:
    """Refuse to score answers right after a prompt where a model would think first."""
    for model in models:
        ids = ids_if_any(model.prompt_ids, prompt)
        own = _thoughts(model, prompt, ids) if ids else None
        if own is not None and _surely(model, own):
            name = _switch(model, own.end)
            fix = _fix({model.name: name}) if name else "take requests that generate a text"
            raise UserError(
                f"{model.name} thinks before it answers, so how likely an answer is without"
                f" thoughts says little; {fix}"
            )


def _surely(model: "ModelTokenizer", own: Thoughts) -> bool:
    """Whether the prompt makes a model think; otherwise only its text shows whether it does."""
    return own.opened or CHANNEL in own.begin or _switch(model, own.end) is not None


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
