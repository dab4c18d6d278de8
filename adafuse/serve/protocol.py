"""OpenAI's interface: what the body of a request may hold, and what is replied."""

import json
import time
import uuid
from codecs import getincrementaldecoder
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import AfterValidator, Field, ValidationInfo, model_validator
from pydantic_core import to_jsonable_python

from adafuse.errors import UserError
from adafuse.options import SAMPLING, Flag, Number, Positive, Section, parse
from adafuse.records.result import Chat, Prompt, Result, Round, Turn
from adafuse.storage.yaml_files import parse_json
from adafuse.tokenization.thoughts import Thoughts

Json = dict[str, Any]


class Token(NamedTuple):
    """A token of a text: how it reads by itself, its bytes, and how many characters are before."""

    text: str
    logprob: float
    surface: bytes
    offset: int


class RequestError(UserError):
    """A request that is refused, with the HTTP status and the code that say why."""

    def __init__(self, sentence: str, status: int = 400, code: str | None = None) -> None:
        super().__init__(sentence)
        self.status, self.code = status, code


GREEDY = "decoding is greedy and gives one text"
NO_OTHERS = "other likely tokens are not returned"
NO_SAMPLING = f"{GREEDY} (leave it out, or start the server with --ignore-sampling)"


def _check(value: object, allowed: Sequence[object], why: str) -> object:
    if value is not None and value not in allowed:
        shown = " or ".join(json.dumps(each) for each in allowed)
        raise ValueError(f"must be {shown}: {why}")
    return value


def _only(*allowed: object, why: str = "there is nothing else for an ensemble") -> AfterValidator:
    return AfterValidator(lambda value: _check(value, allowed, why))


def _check_greedy(value: object, info: ValidationInfo) -> object:
    assert info.field_name is not None
    return _check(value, SAMPLING[info.field_name], NO_SAMPLING)


Greedy = AfterValidator(_check_greedy)


def _nothing(value: object) -> object:
    if value:
        raise ValueError("must be left out: there is nothing of the kind for an ensemble")
    return value


def _check_not_empty(value: list[Any]) -> list[Any]:
    if not value:
        raise ValueError("must hold a message at least")
    return value


Nothing = Annotated[Any, AfterValidator(_nothing)]

MOST_STOPS, LONGEST_STOP = 64, 256
"""So many stop strings may a request have, each of so many characters: all are looked for often."""


class StreamOptions(Section):
    """What else a stream has."""

    kind_of_key = "field of stream_options"
    include_usage: Flag = False
    include_obfuscation: Any = None


def _check_stops(value: Any) -> Any:
    strings = [value] if isinstance(value, str) else value or []
    if not isinstance(strings, list) or not all(isinstance(string, str) for string in strings):
        raise ValueError("must be a text or a list of texts")
    if len(strings) > MOST_STOPS:
        raise ValueError(f"must hold {MOST_STOPS} strings at most")
    if any(len(string) > LONGEST_STOP for string in strings):
        raise ValueError(f"must have strings of {LONGEST_STOP} characters at most")
    return value


class Body(Section):
    """What both kinds of completions have in common; what does not change a text is ignored.

    `method`, `options`, `max_rounds` and `rounds` are AdaFuse's own; clients pass them as
    `extra_body`.
    """

    kind_of_key = "field"
    id_prefix: ClassVar[str]
    kind: ClassVar[str]
    chunk: ClassVar[str]

    model: str | None = None
    stream: Flag = False
    stream_options: StreamOptions | None = None
    stop: Annotated[Any, AfterValidator(_check_stops)] = None
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    method: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    max_rounds: Positive | None = None
    rounds: Flag = False
    logprobs: Any = None

    temperature: Annotated[float | None, Greedy] = None
    top_p: Annotated[float | None, Greedy] = None
    top_k: Annotated[int | None, Greedy] = None
    min_p: Annotated[float | None, Greedy] = None
    typical_p: Annotated[float | None, Greedy] = None
    n: Annotated[int | None, _only(*SAMPLING["n"], why=GREEDY)] = None
    best_of: Annotated[int | None, Greedy] = None
    presence_penalty: Annotated[float | None, Greedy] = None
    frequency_penalty: Annotated[float | None, Greedy] = None
    repetition_penalty: Annotated[float | None, Greedy] = None
    length_penalty: Annotated[float | None, Greedy] = None
    do_sample: Annotated[bool | None, Greedy] = None
    use_beam_search: Annotated[bool | None, Greedy] = None
    logit_bias: Nothing = None

    seed: Any = None
    user: Any = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None
    prompt_cache_options: Any = None

    @model_validator(mode="after")
    def _has_one_length(self) -> Self:
        lengths = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(lengths) > 1:
            raise ValueError(
                f"max_tokens {self.max_tokens} and max_completion_tokens"
                f" {self.max_completion_tokens} contradict each other; give one of them"
            )
        return self

    @property
    def strings(self) -> list[str]:
        """The stop strings."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    def options_among(self, names: Collection[str]) -> Json:
        """Return the options of a method that has those of these names; a seed may be one."""
        seed = {} if self.seed is None or "seed" not in names else {"seed": self.seed}
        return {**seed, **self.options}

    @property
    def counted(self) -> bool:
        """Whether a stream ends with the tokens that it took."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def wants_logprobs(self) -> bool:
        """Whether each token comes with its log-probability; a number, 0 too, says so."""
        return self.logprobs is not None and self.logprobs is not False

    @property
    def prompts(self) -> list[Prompt]:
        """What is to be continued."""
        raise NotImplementedError

    def first(self) -> Json | None:
        """Return what begins a text in a stream, if anything does."""
        return None

    def piece(self, text: str | None, reasoning: str = "") -> Json:
        """Return how a piece of a stream has its text; None: there is no more."""
        raise NotImplementedError

    def whole(self, text: str, thoughts: Thoughts | None) -> Json:
        """Return how a choice has its text."""
        raise NotImplementedError

    def token_logprobs(self, tokens: Sequence[Token]) -> Json:
        """Return how a choice has the log-probabilities of its tokens."""
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


class Completion(Body):
    """The body of /v1/completions."""

    id_prefix, kind, chunk = "cmpl", "text_completion", "text_completion"

    prompt: Annotated[Any, AfterValidator(_text_prompts)]
    logprobs: Annotated[Number | None, _only(0, 1, why=NO_OTHERS)] = None
    echo: Annotated[Flag | None, AfterValidator(_nothing)] = None
    suffix: Nothing = None

    @property
    def prompts(self) -> list[Prompt]:
        """The texts."""
        return list(self.prompt)

    def piece(self, text: str | None, reasoning: str = "") -> Json:
        """Return how a piece of a stream has its text."""
        return {"text": text or ""}

    def whole(self, text: str, thoughts: Thoughts | None) -> Json:
        """Return how a choice has its text, thoughts included."""
        return {"text": text}

    def token_logprobs(self, tokens: Sequence[Token]) -> Json:
        """Return parallel lists of tokens, log-probabilities and places in the text."""
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": None,
            "text_offset": [token.offset for token in tokens],
        }


class Conversation(Body):
    """The body of /v1/chat/completions; the models write on in the last turn of an assistant."""

    id_prefix, kind, chunk = "chatcmpl", "chat.completion", "chat.completion.chunk"

    messages: Annotated[list[dict[str, Any]], AfterValidator(_check_not_empty)]
    logprobs: Flag | None = None
    top_logprobs: Nothing = None
    tools: Nothing = None
    tool_choice: Annotated[Any, _only("none", "auto")] = None
    parallel_tool_calls: Any = None
    functions: Nothing = None
    function_call: Annotated[Any, _only("none", "auto")] = None
    modalities: Annotated[list[str] | None, _only(["text"])] = None
    audio: Nothing = None
    prediction: Nothing = None
    web_search_options: Nothing = None
    moderation: Nothing = None
    response_format: Annotated[dict[str, Any] | None, _only({"type": "text"})] = None
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    reasoning_effort: Any = None
    verbosity: Any = None

    @property
    def prompts(self) -> list[Prompt]:
        """The conversation."""
        turns = [_turn(message) for message in self.messages]
        return [Chat(turns, chat_template_kwargs=self.chat_template_kwargs)]

    def first(self) -> Json:
        """Return the piece that says who speaks."""
        return {"delta": {"role": "assistant", "content": ""}}

    def piece(self, text: str | None, reasoning: str = "") -> Json:
        """Return how a piece of a stream has its text, or thoughts."""
        parts = {"reasoning_content": reasoning, "content": text}
        return {"delta": {name: part for name, part in parts.items() if part}}

    def whole(self, text: str, thoughts: Thoughts | None) -> Json:
        """Return how a choice has its text, apart from thoughts."""
        reasoning, text = ("", text) if thoughts is None else thoughts.split(text, whole=True)
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"message": message | ({"reasoning_content": reasoning} if reasoning else {})}

    def token_logprobs(self, tokens: Sequence[Token]) -> Json:
        """Return a record per token."""
        return {
            "content": [
                {
                    "token": token.text,
                    "logprob": token.logprob,
                    "bytes": list(token.surface),
                    "top_logprobs": [],
                }
                for token in tokens
            ]
        }


_ROLES = {"developer": "system"}
_MESSAGE = ("role", "content", "reasoning_content", "annotations")
"""What a message has that is read, or that an answer had and templates leave out."""


def _turn(message: Mapping[str, Any]) -> Turn:
    role: Any = message.get("role")
    content: Any = message.get("content")  # of another type: refused with the conversation
    if odd := [key for key, value in message.items() if value and key not in _MESSAGE]:
        raise UserError(f"a message has {odd[0]!r}, which no model would read; leave it out")
    if isinstance(content, list):
        for part in content:
            text = part.get("text") if isinstance(part, Mapping) else None
            if not isinstance(text, str) or part.get("type", "text") != "text":
                raise UserError("a message has a part that is not text; send texts only")
        content = "".join(part["text"] for part in content)
    (turn,) = Chat([{"role": _ROLES.get(str(role), role), "content": content}]).turns
    return turn


def read_request(kind: type[Body], body: bytes, *, ignore_sampling: bool = False) -> Body:
    """Read the body of a request; null is as if a field was left out.

    Raises:
        UserError: it is no JSON object, or has what cannot be met.
    """
    try:
        values = parse_json(body)
        json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UserError(
            "the request holds half of a surrogate pair, which is not a character; remove it"
        ) from None
    except ValueError as error:
        raise UserError(f"the request is not valid JSON ({error}); send an object") from None
    if not isinstance(values, dict):
        raise UserError("the request is not a JSON object; send one")
    unread = SAMPLING.keys() - {"n"} if ignore_sampling else set()
    given = {k: v for k, v in values.items() if v is not None and k not in unread}
    return parse(kind, given, "request")


REASONS = {"eos": "stop", "stop": "stop", "length": "length"}


@dataclass(frozen=True)
class Reply:
    """What is replied to a request, whole or in pieces; a choice is the text of a prompt."""

    body: Body
    model: str
    created: int = field(default_factory=lambda: int(time.time()))
    number: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def id(self) -> str:
        """The id of the reply, which begins with its kind."""
        return f"{self.body.id_prefix}-{self.number}"

    def whole(self, results: Sequence[Result], thoughts: Sequence[Thoughts | None]) -> Json:
        """Return the reply to a request that is not streamed."""
        own = [t if r.thoughts else None for r, t in zip(results, thoughts, strict=True)]
        choices = [
            self._choice(
                index,
                self.body.whole(result.text, own[index]),
                REASONS[result.stop_reason],
                self._logprobs(result, own[index]),
                self._fused(result.rounds, result),
            )
            for index, result in enumerate(results)
        ]
        return {**self._around(self.body.kind, *choices), **costs(results)}

    def first(self, index: int) -> Json | None:
        """Return the piece that begins a text in a stream, if there is one."""
        first = self.body.first()
        return first and self._around(self.body.chunk, self._choice(index, first))

    def piece(self, index: int, text: str, reasoning: str, rounds: Sequence[Round]) -> Json:
        """Return a piece of a stream: some text, thoughts, or the rounds since the last piece."""
        said, fused = self.body.piece(text, reasoning), self._fused(rounds) if rounds else None
        return self._around(self.body.chunk, self._choice(index, said, fused=fused))

    def last(self, index: int, result: Result) -> Json:
        """Return the piece that says why there is no more text."""
        reason, fused = REASONS[result.stop_reason], self._fused([], result)
        return self._around(
            self.body.chunk, self._choice(index, self.body.piece(None), reason, fused=fused)
        )

    def end(self, results: Sequence[Result]) -> Json:
        """Return the last piece of a stream that is counted."""
        return {**self._around(self.body.chunk), **costs(results)}

    def _logprobs(self, result: Result, thoughts: Thoughts | None) -> Json | None:
        """Return the log-probabilities that are asked for; thoughts that come apart have none."""
        if not self.body.wants_logprobs:
            return None
        begin = thoughts.length(result.text) if thoughts else 0
        return self.body.token_logprobs(_tokens(result, begin))

    def _fused(self, rounds: Sequence[Round], result: Result | None = None) -> Json | None:
        """Return how a text came about, if that is asked for; what is not finite is null."""
        if not self.body.rounds:
            return None
        names = ("text", "thoughts", "stop_reason") if result else ()
        said = {name: getattr(result, name) for name in names} | {"rounds": rounds}
        fused: Json = to_jsonable_python(said, inf_nan_mode="null")
        return fused

    def _choice(
        self,
        index: int,
        text: Json,
        reason: str | None = None,
        logprobs: Json | None = None,
        fused: Json | None = None,
    ) -> Json:
        own = {} if fused is None else {"adafuse": fused}
        return {"index": index, **text, "logprobs": logprobs, "finish_reason": reason, **own}

    def _around(self, kind: str, *choices: Json) -> Json:
        named = {"id": self.id, "object": kind, "created": self.created, "model": self.model}
        return {**named, "choices": list(choices)}


def costs(results: Sequence[Result]) -> Json:
    """Return the tokens, of each text the model's that has most, and what OpenAI has no field for.

    In `adafuse`, tokens and forwards are per model.
    """
    prompt = sum(max(result.prompt_tokens, default=0) for result in results)
    text = sum(max(result.tokens, default=0) for result in results)
    return {
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": text,
            "total_tokens": prompt + text,
        },
        "adafuse": [
            {
                "tokens": result.tokens,
                "prompt_tokens": result.prompt_tokens,
                "forwards": result.forwards,
                "rounds": len(result.rounds),
                "seconds": result.seconds,
            }
            for result in results
        ],
    }


def _tokens(result: Result, begin: int) -> list[Token]:
    """Return the committed tokens of a method that commits one a round, from a character on."""
    tokens: list[Token] = []
    decoder, length = getincrementaldecoder("utf-8")("replace"), 0
    for one, surface in zip(result.rounds, result.surfaces, strict=True):
        if length >= len(result.text):
            break  # the others are behind a stop string
        chosen, place = one.candidates[one.selected or 0], length
        length += len(decoder.decode(surface))
        if begin <= place or begin < length:
            tokens.append(Token(chosen.text, -chosen.fused, surface, place))
    return tokens
