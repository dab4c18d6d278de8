"""What clients may ask for, in the words of OpenAI's interface."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from adafuse.errors import UserError
from adafuse.options import Flag, Positive, Section, parse
from adafuse.records import Chat, Prompt, Turn


class RequestError(Exception):
    """A request that is refused, with the HTTP status and the code that say why."""

    def __init__(self, sentence: str, status: int = 400, code: str | None = None) -> None:
        super().__init__(sentence)
        self.status, self.code = status, code


def _only(*allowed: object) -> AfterValidator:
    def check(value: object) -> object:
        if value is not None and value not in allowed:
            shown = " or ".join(json.dumps(each) for each in allowed)
            raise ValueError(f"must be {shown}: decoding is greedy and gives one text")
        return value

    return AfterValidator(check)


def _nothing(value: object) -> object:
    if value:
        raise ValueError("must be left out: there is nothing of the kind for an ensemble")
    return value


def _some(value: list[Any]) -> list[Any]:
    if not value:
        raise ValueError("must hold a message at least")
    return value


Nothing = Annotated[Any, AfterValidator(_nothing)]


class Asked(Section):
    """What both kinds of completions have in common; what has no meaning here is ignored.

    `method`, `options` and `max_rounds` are AdaFuse's own; clients pass them as `extra_body`.
    """

    kind_of_key = "field"

    model: str | None = None
    stream: Flag = False
    stream_options: dict[str, bool] | None = None
    stop: str | list[str] | None = None
    max_tokens: Positive | None = None
    method: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    max_rounds: Positive | None = None

    temperature: Annotated[float | None, _only(0)] = None
    top_p: Annotated[float | None, _only(1)] = None
    n: Annotated[int | None, _only(1)] = None
    best_of: Annotated[int | None, _only(1)] = None
    presence_penalty: Annotated[float | None, _only(0)] = None
    frequency_penalty: Annotated[float | None, _only(0)] = None
    logit_bias: Nothing = None

    seed: Any = None
    user: Any = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None

    @property
    def strings(self) -> list[str]:
        """The stop strings."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def counted(self) -> bool:
        """Whether a stream ends with the tokens that it took."""
        return bool(self.stream_options and self.stream_options.get("include_usage"))

    @property
    def prompts(self) -> list[Prompt]:
        """What is to be continued."""
        raise NotImplementedError

    @property
    def wants_logprobs(self) -> bool:
        """Whether each token comes with its log-probability."""
        raise NotImplementedError


def _text_prompts(value: object) -> object:
    given = [value] if isinstance(value, str) else value
    if isinstance(given, list) and given and all(isinstance(each, str) for each in given):
        if all(each.strip() for each in given):
            return given
        raise ValueError("must hold some text")
    raise ValueError(
        "must be a text or a list of texts: the models have different tokenizers, so that ids mean"
        " nothing (lm-eval: tokenized_requests=False)"
    )


class Completion(Asked):
    """The body of /v1/completions."""

    prompt: Annotated[Any, AfterValidator(_text_prompts)]
    logprobs: int | None = None
    echo: Annotated[Flag | None, AfterValidator(_nothing)] = None
    suffix: Nothing = None

    @property
    def prompts(self) -> list[Prompt]:
        """The texts."""
        return list(self.prompt)

    @property
    def wants_logprobs(self) -> bool:
        """Whether each token comes with its log-probability."""
        return self.logprobs is not None


class Conversation(Asked):
    """The body of /v1/chat/completions; the models write on in the last turn of an assistant."""

    messages: Annotated[list[dict[str, Any]], AfterValidator(_some)]
    max_completion_tokens: Positive | None = None
    logprobs: Flag | None = None
    top_logprobs: Nothing = None
    tools: Nothing = None
    tool_choice: Any = None
    parallel_tool_calls: Any = None
    functions: Nothing = None
    response_format: Annotated[dict[str, Any] | None, _only({"type": "text"})] = None
    reasoning_effort: Any = None

    @property
    def prompts(self) -> list[Prompt]:
        """The conversation."""
        turns = [_turn(message) for message in self.messages]
        return [Chat(turns, continues=turns[-1].role == "assistant")]

    @property
    def wants_logprobs(self) -> bool:
        """Whether each token comes with its log-probability."""
        return bool(self.logprobs)


_ROLES = {"developer": "system"}


def _turn(message: Mapping[str, Any]) -> Turn:
    role: Any = message.get("role")
    content: Any = message.get("content")  # of another type: refused with the conversation
    if isinstance(content, Sequence) and not isinstance(content, str):
        parts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        if None in parts:
            raise UserError("a message has a part that is no text; send texts only")
        content = "".join(map(str, parts))
    (turn,) = Chat([{"role": _ROLES.get(str(role), role), "content": content}]).turns
    return turn


def read_request(kind: type[Asked], body: bytes) -> Asked:
    """Read the body of a request.

    Raises:
        UserError: it is no JSON object, or has what cannot be met.
    """
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UserError(f"the request is not valid JSON ({error}); send an object") from None
    if not isinstance(values, dict):
        raise UserError("the request is not a JSON object; send one")
    return parse(kind, {k: v for k, v in values.items() if v is not None}, "request")
