"""Models as clients see them: their names, and a chat template for each."""

import logging
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from adafuse.errors import UserError
from adafuse.models.language_model import LanguageModel
from adafuse.models.spec import public_name
from adafuse.records.result import Chat, Prompt, Turn
from adafuse.tokenization.prompts import check_variables, turn_end, variable_names

logger = logging.getLogger(__name__)

PLAIN = (
    "{% for turn in messages %}"
    "{% if turn.role != 'system' %}{{ turn.role | capitalize }}: {% endif %}{{ turn.content }}"
    "{% if not loop.last %}{{ '\n\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '\n\nAssistant:' }}{% endif %}"
)
"""The template of a model that has none."""
EFFORT = "reasoning_effort"
"""How long to think: a field of requests, and a variable of some chat templates."""
PLAIN_STOP = "\nUser:"
"""Ends an answer in a conversation that some model reads plainly, and would go on writing."""


def served_models(
    models: Sequence[LanguageModel],
    templates: Sequence[str | None],
    variables: Sequence[Mapping[str, Any]] = (),
) -> list[LanguageModel]:
    """Return models named without their folders, each with a template for conversations.

    `variables` are those of templates that are given.

    Raises:
        UserError: a template that cannot be used.
    """
    names = [public_name(model.name) for model in models]
    served = []
    for number, (model, name) in enumerate(zip(models, names, strict=True)):
        shown = name if names.count(name) == 1 else f"{name}-{number + 1}"
        given = templates[number] if templates else None
        named = replace(model, name=shown)
        if given is not None and variables:
            named = replace(named, chat_template_kwargs=variables[number])
        served.append(_with_template(named, given))
    return served


def _with_template(model: LanguageModel, given: str | None) -> LanguageModel:
    template = getattr(model.tokenizer, "chat_template", None)
    if template and given is None:
        return model
    if given is None:
        logger.warning(
            "%s has no chat template: it reads conversations plainly, as docs/serve.md says; give"
            " --chat-template FILE for another form",
            model.name,
        )
    tokenizer = copy(model.tokenizer)
    tokenizer.chat_template = given or PLAIN
    ends = {**dict.fromkeys(turn_end(tokenizer), "chat template"), **model.end_ids}
    changed = replace(model, tokenizer=tokenizer, end_ids=ends)
    try:
        changed.prompt_ids(Chat([Turn("user", "Who?")]))
    except Exception as error:  # noqa: BLE001 - templates raise anything
        raise UserError(
            f"the --chat-template of {model.name} cannot write a conversation ({error}); correct it"
        ) from None
    check_variables(tokenizer, model.name, changed.chat_template_kwargs)
    return changed


def with_effort(models: Sequence[LanguageModel], prompt: Prompt, effort: object) -> Prompt:
    """Return a conversation with a `reasoning_effort` for its templates, if one of them reads it.

    The variable of that name in `chat_template_kwargs` comes first.
    """
    templates = {str(model.tokenizer.get_chat_template()) for model in models}
    reads = any(EFFORT in variable_names(template) for template in templates)
    if not reads or not isinstance(prompt, Chat):
        return prompt
    return Chat(prompt.turns, prompt.continues, {EFFORT: effort, **prompt.chat_template_kwargs})
