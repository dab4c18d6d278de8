"""vLLM: ids in and ids out of `/v1/completions`."""

import math
import struct
from collections.abc import Sequence
from typing import Any

from adafuse.servers.http import Fault, Http
from adafuse.servers.server import Ask, Served, Server, Step, served_models

LIKELIEST = 20
"""So many ids are read, vLLM's own limit: p(END) and spans of one token are often among them."""
NEGLIGIBLE = 1e-6
"""End ids are read in the order of their probabilities until another adds no more than this."""
_UNLIKELY = (5, 3)


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

    def describe(self) -> Served:
        version = str(self.http.get("/version")["version"])
        context = served_models(self.http)[self.name]["max_model_len"]
        return Served(self.engine, version, self.name, int(str(context)))

    def write(self, ask: Ask, top: int) -> list[Step]:
        top = max(top, LIKELIEST)
        if self.writes:
            return self._written(ask, top)
        steps = [self._forced(ask, n, top) for n in range(len(ask.forced))]
        whole = ask.prefix + ask.forced
        first, *rest = self._completion(whole, 1 + ask.ahead, top, stop=[*ask.stop])
        log_end = self._log_end(whole, top) if ask.ends else None
        return [*steps, first._replace(log_end=log_end), *rest]

    def _has_processor(self) -> bool:
        """Whether ids are written that would hardly be written by themselves."""
        steps = self._written(Ask((3, 5, 7), _UNLIKELY), LIKELIEST)
        return tuple(step.written for step in steps[: len(_UNLIKELY)]) == _UNLIKELY

    def _written(self, ask: Ask, top: int) -> list[Step]:
        """Have the processor write what is forced, and read off what it reports of END."""
        last, more = len(ask.forced), 4 if ask.ends else 1 + ask.ahead
        own: dict[str, Any] = {"vllm_xargs": {"forced": [*ask.forced]}, "min_tokens": last}
        if not ask.ends:
            return self._completion(ask.prefix, last + more, top, stop=[*ask.stop], **own)
        own["vllm_xargs"]["ends"] = [*self.end_ids]
        own["stop_token_ids"] = []  # what is written stands for a number
        steps = self._completion(ask.prefix, last + more, top, **own)
        value = bytes(step.written for step in steps[last:])
        return [*steps[:last], steps[last]._replace(log_end=struct.unpack(">f", value)[0])]

    def _forced(self, ask: Ask, count: int, top: int) -> Step:
        prefix, allowed = ask.prefix + ask.forced[:count], [ask.forced[count]]
        return self._completion(prefix, 1, top, allowed_token_ids=allowed)[0]

    def _log_end(self, prefix: tuple[int, ...], top: int) -> float:
        left, total = list(self.end_ids), 0.0
        while left:
            (step,) = self._completion(prefix, 1, top, allowed_token_ids=left)
            part = math.exp(step.logprob)
            total += part
            if part * len(left) <= NEGLIGIBLE * total:
                break
            left.remove(step.written)
        return math.log(total) if total else -math.inf

    def _completion(self, prefix: tuple[int, ...], most: int, top: int, **more: Any) -> list[Step]:
        body = {
            "model": self.name,
            "prompt": [*prefix],
            "max_tokens": most,
            "temperature": 0,
            "logprobs": top,
            "return_tokens_as_token_ids": True,
            "include_stop_str_in_output": True,
            "ignore_eos": True,
            "stop_token_ids": [self.end_ids[0]],
            **more,
        }
        return self.http.post("/v1/completions", body, lambda answer: self._steps(answer, top))

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
