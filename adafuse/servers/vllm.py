"""vLLM: ids in and ids out of `/v1/completions`."""

import math
import struct
from collections.abc import Container, Sequence
from typing import Any

from adafuse.errors import ExampleError, UserError
from adafuse.records.served import Served
from adafuse.servers.http import Fault, Http
from adafuse.servers.server import PROBE, Ask, Server, Step, Weights, served_models
from adafuse.storage.files import PACKAGE

LIKELIEST = 20
"""So many ids are read, vLLM's own limit: p(END) and spans of one token are often among them."""
NEGLIGIBLE = 1e-6
"""End ids are read in the order of their probabilities until another adds no more than this."""
PROCESSOR = PACKAGE / "servers" / "vllm_processor.py"
"""The logits processor, for the environment of a server."""
_VALUE = (range(256),) * 4
"""The ids that stand for a number, its bytes."""
_ANY = range(1 << 32)


class Vllm(Server):
    """A vLLM server.

    With the logits processor of `vllm_processor.py`, a span is scored while the server writes it,
    in one request. Without it, each id of a span is a request with one allowed id. In both cases
    log-probabilities are those before anything was forbidden (`--logprobs-mode raw_logprobs`).
    """

    engine = "vllm"

    def __init__(self, http: Http, name: str, end_ids: Sequence[int]) -> None:
        self.writes = False
        super().__init__(http, name, end_ids)
        self.writes = self._has_processor()

    @classmethod
    def recognizes(cls, owner: str) -> bool:
        return owner == "vllm"

    @classmethod
    def command(cls, program: str, model: Weights, address: str, port: str) -> list[str]:
        """Return what starts a server with the logits processor, which is on its PYTHONPATH."""
        if model.file is not None:
            raise UserError(f"{model.file!r} is a GGUF file; serve it with engine llama.cpp")
        words = [program, "serve", model.path, "--host", address, "--port", port]
        words += ["--revision", model.revision] if model.revision else []
        words += ["--trust-remote-code"] if model.trust_remote_code else []
        words += ["--tensor-parallel-size", str(model.gpus)] if model.gpus > 1 else []
        words += ["--enable-prefix-caching", "--enable-prompt-tokens-details"]
        return [*words, "--logits-processors", f"{PROCESSOR.stem}:Spans"]

    def describe(self) -> Served:
        version = str(self.http.get("/version")["version"])
        models = served_models(self.http)
        own = models[self.name]
        if own["max_model_len"] is None:  # of an adapter, only its base model says it
            own = models[str(own["parent"])]
        context = int(str(own["max_model_len"]))
        return Served(self.engine, version, self.name, context)

    def tokenize(self, text: str) -> list[int] | None:
        body = {"model": self.name, "prompt": text, "add_special_tokens": False}
        try:
            return self.http.post("/tokenize", body, lambda answer: [*answer["tokens"]])
        except (ExampleError, KeyError, TypeError):
            return None

    def write(self, ask: Ask, top: int) -> list[Step]:
        top = max(top, LIKELIEST)
        whole = ask.prefix + ask.forced
        if self.writes and not (ask.ends and len(whole) + len(_VALUE) > self.served.context):
            return self._written(ask, top)
        steps = [
            self._one_of([n], ask.prefix + ask.forced[:i], top) for i, n in enumerate(ask.forced)
        ]
        first, *rest = self._completion(whole, [_ANY], top, ask.ahead, stop=[*ask.stop])
        log_end = self._log_end(whole, top) if ask.ends else None
        return [*steps, first._replace(log_end=log_end), *rest]

    def _has_processor(self) -> bool:
        """Whether ids are written that would hardly be written by themselves."""
        asked: dict[str, Any] = {"vllm_xargs": {"forced": [*PROBE.forced]}, "stop_token_ids": []}
        steps = self._completion(PROBE.prefix, [_ANY] * 2, LIKELIEST, **asked)
        return tuple(step.written for step in steps) == PROBE.forced

    def _written(self, ask: Ask, top: int) -> list[Step]:
        """Have the processor write what is forced, and read off what it reports of END."""
        forced, last = [(index,) for index in ask.forced], len(ask.forced)
        own: dict[str, Any] = {"vllm_xargs": {"forced": [*ask.forced]}, "min_tokens": last}
        if not ask.ends:
            own["stop"] = [*ask.stop]
            return self._completion(ask.prefix, [*forced, _ANY], top, ask.ahead, **own)
        own["vllm_xargs"]["ends"] = [*self.end_ids]
        own["stop_token_ids"] = []  # what is written stands for a number
        steps = self._completion(ask.prefix, [*forced, *_VALUE], top, **own)
        value = bytes(step.written for step in steps[last:])
        return [*steps[:last], steps[last]._replace(log_end=struct.unpack(">f", value)[0])]

    def _one_of(self, allowed: Sequence[int], prefix: tuple[int, ...], top: int) -> Step:
        """Return a step whose id is the likeliest of those that are allowed."""
        return self._completion(prefix, [allowed], top, allowed_token_ids=[*allowed])[0]

    def _log_end(self, prefix: tuple[int, ...], top: int) -> float:
        left, total = list(self.end_ids), 0.0
        while left:
            step = self._one_of(left, prefix, top)
            part = math.exp(step.logprob)
            total += part
            if part * len(left) <= NEGLIGIBLE * total:
                break
            left.remove(step.written)
        return math.log(total) if total else -math.inf

    def _completion(
        self,
        prefix: tuple[int, ...],
        first: Sequence[Container[int]],
        top: int,
        ahead: int = 0,
        **more: Any,
    ) -> list[Step]:
        """Return the steps that follow a prefix, at most `ahead` after the `first` ones.

        `first` are the ids of which each of these must be.
        """
        body = {
            "model": self.name,
            "prompt": [*prefix],
            "max_tokens": len(first) + ahead,
            "temperature": 0,
            "logprobs": top,
            "return_tokens_as_token_ids": True,
            "include_stop_str_in_output": True,
            "ignore_eos": True,
            "stop_token_ids": [index for index in self.end_ids[:1] if (index,) not in first],
            **more,
        }

        def read(answer: Any) -> list[Step]:
            steps = self._steps(answer, top)
            if len(steps) < len(first):
                raise Fault("fewer ids than it was asked for")
            if any(step.written not in ids for step, ids in zip(steps, first, strict=False)):
                raise Fault("other ids than it was asked for")
            return steps

        return self.http.post("/v1/completions", body, read)

    def _steps(self, answer: Any, top: int) -> list[Step]:
        try:
            logprobs, usage = answer["choices"][0]["logprobs"], answer["usage"]
            rows = [{_id(k): v for k, v in row.items()} for row in logprobs["top_logprobs"]]
            written = [_id(token) for token in logprobs["tokens"]]
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            steps = [Step.of(row, id, top) for row, id in zip(rows, written, strict=True)]
            self.counts.add(len(steps), usage["prompt_tokens"], cached)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise Fault(f"an answer of another form ({type(error).__name__}: {error})") from error
        return steps


def _id(token: str) -> int:
    return int(token.removeprefix("token_id:"))
