"""What completions and chat completions look like, whole and in pieces (OpenAI's interface)."""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from adafuse.records.result import Candidate, Result
from adafuse.serve.requests import Asked, Completion, Conversation

Json = dict[str, Any]

REASONS = {"eos": "stop", "stop": "stop", "length": "length"}


def usage(results: Sequence[Result]) -> Json:
    """Return the tokens of prompts and texts, of each the model's that has most."""
    prompt = sum(max(result.prompt_tokens, default=0) for result in results)
    text = sum(max(result.tokens, default=0) for result in results)
    return {"prompt_tokens": prompt, "completion_tokens": text, "total_tokens": prompt + text}


def costs(results: Sequence[Result]) -> list[Json]:
    """Return what OpenAI's interface has no field for: tokens and forwards are per model."""
    return [
        {
            "tokens": result.tokens,
            "prompt_tokens": result.prompt_tokens,
            "forwards": result.forwards,
            "rounds": len(result.rounds),
            "seconds": result.seconds,
        }
        for result in results
    ]


def chosen_tokens(result: Result) -> list[Candidate]:
    """Return the committed tokens of a method that commits one a round."""
    found: list[Candidate] = []
    for taken in result.rounds:
        if len("".join(token.text for token in found)) >= len(result.text):
            break  # the others are behind a stop string
        if taken.selected is not None:
            found.append(taken.candidates[taken.selected])
    return found


@dataclass
class Form:
    """One answer of a kind; its choices are the texts of its prompts."""

    model: str
    id: str = field(default="")
    created: int = field(default_factory=lambda: int(time.time()))

    body: ClassVar[type[Asked]]
    kind: ClassVar[str]
    prefix: ClassVar[str]

    def __post_init__(self) -> None:
        self.id = self.id or f"{self.prefix}-{uuid.uuid4().hex}"

    def _around(self, kind: str, choices: Sequence[Mapping[str, Any]]) -> Json:
        named = {"id": self.id, "object": kind, "created": self.created, "model": self.model}
        return {**named, "choices": list(choices)}

    def whole(self, results: Sequence[Result], *, logprobs: bool) -> Json:
        """Return the answer to a request that is not streamed."""
        choices = [
            {
                "index": index,
                **self._text(result.text),
                "logprobs": self._logprobs(result) if logprobs else None,
                "finish_reason": REASONS[result.stop_reason],
            }
            for index, result in enumerate(results)
        ]
        return {
            **self._around(self.kind, choices),
            "usage": usage(results),
            "adafuse": costs(results),
        }

    def piece(self, index: int, text: str | None, reason: str | None = None) -> Json:
        """Return a piece of a stream: some text, or why there is no more."""
        choice = {"index": index, **self._piece(text), "logprobs": None, "finish_reason": reason}
        return self._around(self._piece_kind, [choice])

    def first(self, index: int) -> Json | None:
        """Return the piece that begins a text in a stream, if it begins with one."""
        return None

    def end(self, results: Sequence[Result]) -> Json:
        """Return the last piece of a stream that is counted."""
        around = self._around(self._piece_kind, [])
        return {**around, "usage": usage(results), "adafuse": costs(results)}

    @property
    def _piece_kind(self) -> str:
        return self.kind

    def _text(self, text: str) -> Json:
        raise NotImplementedError

    def _piece(self, text: str | None) -> Json:
        raise NotImplementedError

    def _logprobs(self, result: Result) -> Json:
        raise NotImplementedError


class TextForm(Form):
    """/v1/completions."""

    body, kind, prefix = Completion, "text_completion", "cmpl"

    def _text(self, text: str) -> Json:
        return {"text": text}

    def _piece(self, text: str | None) -> Json:
        return {"text": text or ""}

    def _logprobs(self, result: Result) -> Json:
        tokens = chosen_tokens(result)
        texts = [token.text for token in tokens]
        return {
            "tokens": texts,
            "token_logprobs": [-token.fused for token in tokens],
            "top_logprobs": None,
            "text_offset": [len("".join(texts[:at])) for at in range(len(texts))],
        }


class ChatForm(Form):
    """/v1/chat/completions."""

    body, kind, prefix = Conversation, "chat.completion", "chatcmpl"

    @property
    def _piece_kind(self) -> str:
        return f"{self.kind}.chunk"

    def _text(self, text: str) -> Json:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def first(self, index: int) -> Json:
        """Return the piece that says who speaks."""
        choice = {"index": index, "delta": {"role": "assistant", "content": ""}}
        begun = {**choice, "logprobs": None, "finish_reason": None}
        return self._around(self._piece_kind, [begun])

    def _piece(self, text: str | None) -> Json:
        return {"delta": {} if text is None else {"content": text}}

    def _logprobs(self, result: Result) -> Json:
        return {
            "content": [
                {
                    "token": token.text,
                    "logprob": -token.fused,
                    "bytes": list(token.text.encode()),
                    "top_logprobs": [],
                }
                for token in chosen_tokens(result)
            ]
        }
