"""How a prompt becomes the ids of one model: raw text or its own chat template."""

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import cache, lru_cache
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError, meta

from adafuse.errors import UserError, unknown
from adafuse.records.result import CHAT_DATE, Chat, Prompt, Role, Turn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

SAMPLED = 8
"""About this many prompts are compared."""
WORTH_SHARING = 16
"""Fewer ids than this are computed again."""


@dataclass(frozen=True, slots=True)
class Variables:
    """What a chat template reads besides the turns: the day, and the `others` as JSON."""

    today: str = CHAT_DATE
    others: str = "{}"


def prompt_ids(
    tokenizer: "PreTrainedTokenizerBase",
    prompt: Prompt,
    variables: Mapping[str, Any] | None = None,
    *,
    chat: bool,
    today: str = CHAT_DATE,
) -> list[int]:
    """Return the ids of `prompt`, with exactly one start token where the tokenizer adds one.

    A text stands as it is, unless `chat` makes it what a user says. It may begin with the start
    token, as rendered chat templates do, which then stays the only one. The tokens that a tokenizer
    puts after a text are left out: the text goes on. An empty text without a start token begins
    where another text ended. `today` is the date that chat templates see, and `variables` are
    those that they get besides; of a conversation's, those that this template reads win.
    """
    if isinstance(prompt, str) and not chat:
        end = tokenizer.eos_token_id
        ends = [end] if isinstance(end, int) and not prompt else []
        return started(tokenizer, prompt) or ends
    turns = prompt if isinstance(prompt, Chat) else Chat((_said(tokenizer, prompt),))
    others = dict(variables or {})
    if given := turns.chat_template_kwargs:
        names = variable_names(str(tokenizer.get_chat_template()))
        others |= {name: value for name, value in given.items() if name in names}
    read = Variables(today, json.dumps(others, sort_keys=True))
    try:
        return started(tokenizer, _rendered(tokenizer, turns, read))
    except TemplateError as error:
        raise UserError(
            f"the chat template of {tokenizer.name_or_path!r} does not take this prompt ({error})"
        ) from error


def started(tokenizer: "PreTrainedTokenizerBase", text: str) -> list[int]:
    """Return the ids of a text, after one start token where the tokenizer or the text has one."""
    start, bos = start_ids(tokenizer), tokenizer.bos_token_id
    if not start and isinstance(bos, int) and _begins_with(text, _written(tokenizer, [bos])):
        start = [bos]
    return [*start, *ids_after(tokenizer, start, text)]


def ids_after(tokenizer: "PreTrainedTokenizerBase", start: Sequence[int], text: str) -> list[int]:
    """Return the ids of a text without `start`, which it may begin with, also several times."""
    written = _written(tokenizer, start)
    bare = _without(written, text)
    begins = written * (bare is not text)
    ids = tokenizer.encode(begins + bare, add_special_tokens=False)
    return [*dropwhile(start.__contains__, ids)]


def _written(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int]) -> str:
    return "".join(tokenizer.convert_ids_to_tokens(list(ids)))


def _begins_with(text: str, start: str) -> bool:
    return text.lstrip().startswith(start)


def _without(start: str, text: str) -> str:
    """Return a text without the start tokens that it begins with, and whitespace before them."""
    while start and _begins_with(text, start):
        text = text.lstrip().removeprefix(start)
    return text


def _said(tokenizer: "PreTrainedTokenizerBase", text: str) -> Turn:
    """Return what a user says, without start tokens; refuse a text in a chat template already."""
    bare = _without(_written(tokenizer, start_ids(tokenizer)), text)
    mark = _first_mark(tokenizer, str(tokenizer.chat_template))
    if mark and _begins_with(bare, mark):
        raise UserError(
            f"a prompt begins with {mark!r}, so it has a chat template already; give its messages"
            " instead, or run without chat formatting"
        )
    return Turn("user", bare)


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
    """Refuse chat formatting for a model that has no template, or none that can be read."""
    if not (template := getattr(tokenizer, "chat_template", None)):
        raise UserError(f"model {name!r} has no chat template; {_PLAIN}")
    if isinstance(template, dict) and "default" not in template:
        raise UserError(
            f"model {name!r} has several chat templates ({', '.join(template)}), and none is called"
            f" default; call one so in its tokenizer_config.json, or {_PLAIN}"
        )
    try:
        variable_names(str(tokenizer.get_chat_template()))
    except TemplateError as error:
        raise UserError(
            f"the chat template of model {name!r} cannot be read ({error}); correct it, or {_PLAIN}"
        ) from error


_PLAIN = "run it without chat formatting, on prompts that are texts"


_THOUGHTS_END = re.compile(r"([<\[])/([\w:]*(?:think|thought|reason)[\w:]*)([>\]])", re.IGNORECASE)


CHANNEL = "<|channel|>"
_ANALYSIS = f"{CHANNEL}analysis<|message|>"
_FINAL = f"{CHANNEL}final<|message|>"


def thought_marks(
    tokenizer: "PreTrainedTokenizerBase", given: Mapping[str, str]
) -> tuple[str, str] | None:
    """Return the marks around thoughts: those given, or what a chat template names.

    Those are tags, as <think>, or the channels of gpt-oss. White space around marks is none of
    theirs, as there may be more of it or less.
    """
    if given:
        return given["begin"].strip(), given["end"].strip()
    template = str(getattr(tokenizer, "chat_template", None))
    if _ANALYSIS in template and _FINAL in template:
        return _ANALYSIS, f"<|end|><|start|>assistant{_FINAL}"
    found = _THOUGHTS_END.search(template)
    return found and (f"{found[1]}{found[2]}{found[3]}", found[0])


_NO_VARIABLES = frozenset(
    {"messages", "tools", "documents", "add_generation_prompt"}
    | {f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")}
)
"""What templates read and users do not set."""


@lru_cache(64)
def variable_names(template: str) -> frozenset[str]:
    """Return the names of the variables that a chat template reads and users may set."""
    from transformers.utils import chat_template_utils

    environment = chat_template_utils._compile_jinja_template(template).environment
    read = meta.find_undeclared_variables(environment.parse(template))
    return frozenset(read - environment.globals.keys() - _NO_VARIABLES)


def check_variables(
    tokenizer: "PreTrainedTokenizerBase", name: str, variables: Mapping[str, Any]
) -> None:
    """Refuse variables that a model's chat template does not read."""
    template = getattr(tokenizer, "chat_template", None)
    if variables and template:
        check_chat(tokenizer, name)
    names = variable_names(str(tokenizer.get_chat_template())) if variables and template else ()
    if variables and not names:
        raise UserError(
            f"model {name!r} has no chat template that reads variables, so chat_template_kwargs"
            f" {variables} change nothing; remove them for this model"
        )
    for given in variables:
        if given not in names:
            kind = f"variable of the chat template of {name!r}"
            raise UserError(f"chat_template_kwargs: {unknown(kind, given, sorted(names))}")


def check_read(tokenizers: Sequence["PreTrainedTokenizerBase"], chat: Chat) -> None:
    """Refuse variables of a conversation that no model's chat template reads."""
    names: set[str] = set()
    for tokenizer in tokenizers if chat.chat_template_kwargs else ():
        names |= variable_names(str(tokenizer.get_chat_template()))
    for given in chat.chat_template_kwargs:
        if given not in names:
            kind = "variable of the models' chat templates"
            raise UserError(f"chat_template_kwargs: {unknown(kind, given, sorted(names))}")


def start_ids(tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Return what this tokenizer puts before a text: the start token, two of them, or nothing."""
    whole = list(tokenizer("a")["input_ids"])
    bare = list(tokenizer.encode("a", add_special_tokens=False))
    places = range(len(whole) - len(bare) + 1 if bare else 0)
    first = next((n for n in places if whole[n : n + len(bare)] == bare), None)
    return whole[:first] if first is not None else whole[: whole[:1] == [tokenizer.bos_token_id]]


@lru_cache(16)
def _first_mark(tokenizer: "PreTrainedTokenizerBase", _template: str) -> str:
    """Return the mark, such as <|user|> or [INST], that a template begins with, if there is one."""
    try:
        text = _templated(tokenizer, (Turn("user", "A"),))
    except (TemplateError, TypeError, ValueError):  # a template that takes no such chat
        return ""
    bare = _without(_written(tokenizer, start_ids(tokenizer)), text)
    mark = re.match(r"\s*(<[^<>]+>|\[[^\[\]]+\])", bare)
    return mark[1] if mark else ""


def turn_end(tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Return the added token by which a chat template ends an assistant's turn, if there is one."""
    turns = (Turn("user", "A"), Turn("assistant", "Answer"))
    try:
        text = _templated(tokenizer, turns) if tokenizer.chat_template else ""
    except (TemplateError, TypeError, ValueError):  # a template that takes no such chat
        return []
    ids = tokenizer.encode(text.rpartition("Answer")[2].lstrip(), add_special_tokens=False)
    return [index for index in ids[:1] if index in tokenizer.added_tokens_decoder]


_MARK = "(turn {})"
"""Stands for a turn where only its place in a template matters."""


def _rendered(tokenizer: "PreTrainedTokenizerBase", chat: Chat, read: Variables) -> str:
    """Return the text of a chat; where its template takes no system turn, the user says that."""
    roles = tuple(turn.role for turn in chat.turns)
    try:
        return _checked(tokenizer, chat, read)
    except (TemplateError, UserError) as error:
        lost = _lost_turn(tokenizer, str(tokenizer.chat_template), roles, read)
        kept = isinstance(error, UserError) and lost != 0  # it may read a switch there, and cut it
        if roles[:2] != ("system", "user") or kept:
            raise
        system, user, *others = chat.turns
        first = Turn("user", f"{system.content}\n\n{user.content}")
        text = _checked(tokenizer, replace(chat, turns=(first, *others)), read)
    _warn_of_joined_turns(tokenizer.name_or_path)
    return text


def _checked(tokenizer: "PreTrainedTokenizerBase", chat: Chat, read: Variables) -> str:
    """Return the text of a chat, in which every turn has to be.

    Thoughts of earlier answers are not missed: templates leave them out on purpose.
    """
    text = _templated(tokenizer, chat.turns, chat.continues, read)
    roles = tuple(turn.role for turn in chat.turns)
    lost = _lost_turn(tokenizer, str(tokenizer.chat_template), roles, read)
    letters = "".join(text.split())
    for number, turn in enumerate(chat.turns):
        said = turn.content.rpartition("</think>" if turn.role == "assistant" else "\0")[2]
        if number == lost or "".join(said.split()) not in letters:
            raise UserError(
                f"the chat template of {tokenizer.name_or_path!r} leaves out turn {number + 1}"
                f" ({turn.role}: {turn.content[:40]!r}); move it into another turn, or use prompts"
                " that are texts"
            )
    return text


@lru_cache(256)
def _lost_turn(
    tokenizer: "PreTrainedTokenizerBase", _template: str, roles: tuple[Role, ...], read: Variables
) -> int | None:
    """Return the number of a turn that a template leaves out, whatever is said in it."""
    marks = [Turn(role, _MARK.format(number)) for number, role in enumerate(roles)]
    try:
        text = _templated(tokenizer, marks, read=read)
    except TemplateError:  # of a template that reads what is said
        return None
    return next((number for number, mark in enumerate(marks) if mark.content not in text), None)


def _templated(
    tokenizer: "PreTrainedTokenizerBase",
    turns: Sequence[Turn],
    continues: bool | None = None,
    read: Variables = Variables(),
) -> str:
    """Return the rendered turns: the last is continued, or answered, or neither if that is None.

    A turn that is continued ends as it was given, so that all models go on at the same text.
    """
    from transformers.utils import chat_template_utils

    messages: list[dict[str, Any]] = [asdict(turn) for turn in turns]
    end = _MARK.format("end")
    if continues:
        messages[-1]["content"] += end
    # The one way to give a template a function: transformers makes text of those in arguments.
    template = chat_template_utils._compile_jinja_template(tokenizer.get_chat_template())
    template.globals["strftime_now"] = date.fromisoformat(read.today).strftime
    text = str(
        tokenizer.apply_chat_template(
            messages,
            tokenize=False,
            add_generation_prompt=continues is False,
            **json.loads(read.others),
        )
    )
    return _cut(tokenizer, text.rpartition(end)[0], turns[-1].content) if continues else text


def _cut(tokenizer: "PreTrainedTokenizerBase", text: str, begun: str) -> str:
    """Return a text that ends with what was begun, also where a template trims that."""
    if text.endswith(begun):
        return text
    if text.endswith(bare := begun.lstrip()):
        return text[: len(text) - len(bare)] + begun
    raise UserError(
        f"the chat template of {tokenizer.name_or_path!r} changes the turn that is continued,"
        f" {begun[:40]!r}; let the models begin the answer, or use prompts that are texts"
    )


@cache
def _warn_of_joined_turns(name: str) -> None:
    logger.warning(
        "the chat template of %s takes no system turn; its text goes before the user's first turn",
        name,
    )
