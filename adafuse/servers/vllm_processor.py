"""For the environment of a vLLM server, which needs nothing else of AdaFuse: spans to be written.

Put this file where the server finds it (PYTHONPATH), and start that with `--logits-processors
vllm_processor:Spans`. In the `vllm_xargs` of a request,

- `forced` are ids that are written first;
- `ends` are ids whose probabilities are added up after them; the logarithm, a big-endian float32,
  is written as four ids, its bytes.

The log-probabilities in the answer are those before all this.
"""

import struct
from collections.abc import Callable
from typing import Any

import torch
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor  # type: ignore[import-not-found]


class Spans(AdapterLogitsProcessor):  # type: ignore[misc]
    """Writes the ids that a request asks for."""

    def is_argmax_invariant(self) -> bool:
        """Say that another id than the likeliest may be written."""
        return False

    def new_req_logits_processor(
        self, params: Any
    ) -> Callable[[list[int], torch.Tensor], torch.Tensor] | None:
        """Return what chooses the ids of a request; None if it asks for nothing."""
        asked = params.extra_args or {}
        if not asked.keys() & {"forced", "ends"}:
            return None
        forced, ends = asked.get("forced", []), asked.get("ends")

        def choose(written: list[int], logits: torch.Tensor) -> torch.Tensor:
            step = len(written) - len(forced)
            if step < 0:
                return _only(logits, forced[step])
            if ends:
                if step == 0:
                    known = [index for index in ends if index < len(logits)]
                    log_end = logits[known].logsumexp(0) - logits.logsumexp(0)
                    # A request that waits for memory goes on with another `choose`.
                    asked["value"] = struct.pack(">f", float(log_end))
                return _only(logits, asked["value"][step])
            return logits

        return choose


def _only(logits: torch.Tensor, index: int) -> torch.Tensor:
    chosen = torch.full_like(logits, -torch.inf)
    chosen[index % len(chosen)] = 0.0  # of another model, an id may be beyond: that is noticed
    return chosen
