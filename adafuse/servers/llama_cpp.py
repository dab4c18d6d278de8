"""llama.cpp's server: ids in and ids out of `/completion`, one request of an example at a time."""

import math
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from threading import Lock
from typing import Any, cast

from adafuse.errors import UserError
from adafuse.records.served import Served
from adafuse.servers.http import Fault, Http
from adafuse.servers.server import Ask, Server, Step, Weights, served_models

LIKELIEST = 16
"""So many of the likeliest ids are read: they cost little, and p(END) can be told from them."""
_BIAS = 1e4
"""What makes an id the likeliest; log-probabilities are those without it."""


class LlamaCpp(Server):
    """A llama.cpp server, which runs a GGUF file as it is.

    A bias holds for a whole request, so each id of a span is a request that computes one position.
    The requests of an example come one after the other, and the server takes the free slot that
    shares most with each. (Where a request names a slot that another one has, some answers are of
    another text: seen with version 0.6.0.)
    """

    engine = "llama.cpp"

    def __init__(self, http: Http, name: str, end_ids: Sequence[int]) -> None:
        self._turns: defaultdict[int, Lock] = defaultdict(Lock)
        super().__init__(http, name, end_ids)

    @classmethod
    def recognizes(cls, owner: str) -> bool:
        return owner == "llamacpp"

    @classmethod
    def command(cls, program: str, model: Weights, address: str, port: str) -> list[str]:
        """Return what starts a server with a GGUF file, here or of the hub."""
        if model.file is None:
            raise UserError(
                f"{model.path!r} is not a GGUF file, which llama.cpp needs; name one as `path`"
            )
        local = Path(model.path, model.file)
        repository = ["--hf-repo", model.path, "--hf-file", model.file]
        weights = ["--model", str(local)] if local.is_file() else repository
        return [program, *weights, "--host", address, "--port", port]

    def describe(self) -> Served:
        said, meta = self.http.get("/props"), served_models(self.http)[self.name]["meta"]
        self.slots = int(said["total_slots"])
        self._vocabulary = int(cast(Any, meta)["n_vocab"])
        model = f"{self.name.rpartition('/')[2]} ({said.get('model_ftype')})"
        context = int(said["default_generation_settings"]["n_ctx"])
        return Served(self.engine, str(said["build_info"]), model, context)

    def tokenize(self, text: str) -> list[int] | None:
        """Return the ids of a text, without special ones."""
        body = {"content": text, "add_special": False, "parse_special": False}
        return self.http.post("/tokenize", body, lambda answer: [*answer["tokens"]])

    def write(self, ask: Ask, top: int) -> list[Step]:
        top, steps, prefix = max(top, LIKELIEST), [], ask.prefix
        with nullcontext() if ask.slot is None else self._turns[ask.slot]:
            for index in ask.forced:
                steps += self._completion(prefix, 1, top, index) or [
                    self._whole(prefix, top, index)
                ]
                prefix = (*prefix, index)
            rest = [] if ask.ends else self._completion(prefix, 1 + ask.ahead, top)
            return [*steps, *(rest or [self._whole(prefix, top)])]

    def _whole(self, prefix: tuple[int, ...], top: int, index: int = -1) -> Step:
        """Return the step at `index`, or at the likeliest id, read off the whole distribution."""
        # The server reports nothing at an id that leaves a character unfinished, so write another.
        (step,) = self._completion(prefix, 1, self._vocabulary, self._letter())
        logprobs = dict(step.top)
        written = step.top[0][0] if index < 0 else index
        end = math.fsum(math.exp(logprobs[id]) for id in self.end_ids if id in logprobs)
        log_end = math.log(end) if end else -math.inf
        return Step(step.top[:top], written, logprobs[written], log_end)

    def _letter(self) -> int:
        """Return an id that is a character."""
        return (self.tokenize("a") or [0])[-1]

    def _completion(
        self, prefix: tuple[int, ...], most: int, top: int, forced: int | None = None
    ) -> list[Step]:
        """Return what is written, or nothing if a character of it is not finished."""
        body = {
            "model": self.name,
            "prompt": [*prefix],
            "n_predict": most,
            "n_probs": top,
            "samplers": ["temperature"],
            "temperature": 0,
            "logit_bias": [] if forced is None else [[forced, _BIAS]],
            "cache_prompt": True,
            "n_cache_reuse": 0,  # with --cache-reuse, it would move what stood after another text
            "return_tokens": True,
        }
        return self.http.post("/completion", body, lambda answer: self._steps(answer, top, forced))

    def _steps(self, answer: Any, top: int, forced: int | None) -> list[Step]:
        try:
            written, timings = answer["tokens"], answer["timings"]
            rows = answer.get("completion_probabilities", [])
            self.counts.add(
                len(written), timings["cache_n"] + timings["prompt_n"], timings["cache_n"]
            )
            if forced is not None and written != [forced]:
                raise Fault("other ids than it was asked for")
            if len(rows) < len(written):
                return []
            tops = [{each["id"]: each["logprob"] for each in row["top_logprobs"]} for row in rows]
            return [
                Step.of(known | {row["id"]: row["logprob"]}, row["id"], top)
                for row, known in zip(rows, tops, strict=True)
            ]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Fault(f"an answer of another form ({type(error).__name__}: {error})") from error
