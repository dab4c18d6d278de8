"""What is known of prompts that ended: metrics for Prometheus, and a line of the log for each."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from adafuse.records.result import Result

requests = logging.getLogger("adafuse.serve.requests")
"""The log of requests: a line for each prompt that ended, and for each request that was refused."""

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500)
"""Upper ends of the buckets of a request's times; a token takes a tenth of these."""


@dataclass(slots=True)
class Times:
    """When a prompt came, left the queue and had its first text (time.monotonic; None: not yet).

    `tokens` are those of its first text.
    """

    came: float = field(default_factory=time.monotonic)
    began: float | None = None
    first: float | None = None
    tokens: int = 0


class Metrics:
    """Counts and times of what a server decoded; `models` are their names."""

    def __init__(
        self, models: Sequence[str], waiting: Callable[[], int], running: Callable[[], int]
    ) -> None:
        self._models = models
        self._registry = registry = CollectorRegistry()
        for name, doc, count in (
            ("adafuse_waiting", "Prompts that wait.", waiting),
            ("adafuse_running", "Prompts being decoded.", running),
        ):
            Gauge(name, doc, registry=registry).set_function(count)
        counter = partial(Counter, registry=registry)
        self._prompts = counter("adafuse_prompts", "Prompts that ended.", ["how", "method"])
        self._tokens = counter("adafuse_tokens", "Tokens of the texts.", ["model"])
        self._forwards = counter(
            "adafuse_forwards", "Forward passes that prompts took part in.", ["model"]
        )
        self._rounds = counter("adafuse_rounds", "Joint decisions.", ["method"])
        self._agreed = counter("adafuse_agreed_rounds", "Rounds with one candidate.", ["method"])

        def histogram(name: str, doc: str, scale: float = 1.0) -> Histogram:
            ends = [second * scale for second in SECONDS]
            return Histogram(name, doc, ["method"], registry=registry, buckets=ends)

        self._queue = histogram("adafuse_queue_seconds", "Wait for a place in the batch.")
        self._first = histogram("adafuse_first_text_seconds", "From the request to its first text.")
        self._token = histogram("adafuse_token_seconds", "Per token after the first text.", 0.1)
        self._whole = histogram("adafuse_prompt_seconds", "From the request to its whole text.")

    def ended(self, name: str, method: str, how: str, times: Times, result: Result) -> None:
        """Count a prompt that ended ("done", "error", "late" or "gone"), and log it."""
        now, tokens = time.monotonic(), max(result.tokens, default=0)
        began = now if times.began is None else times.began
        first = now if times.first is None else times.first
        for model, count, forwards in zip(
            self._models, result.tokens, result.forwards, strict=True
        ):
            self._tokens.labels(model).inc(count)
            self._forwards.labels(model).inc(forwards)
        self._prompts.labels(how, method).inc()
        self._rounds.labels(method).inc(len(result.rounds))
        agreed = [one.agreed_by(len(self._models)) for one in result.rounds]
        self._agreed.labels(method).inc(sum(agreed))
        self._queue.labels(method).observe(began - times.came)
        if how == "done":
            self._first.labels(method).observe(first - times.came)
            self._whole.labels(method).observe(now - times.came)
            if times.first is not None and tokens > times.tokens:
                self._token.labels(method).observe((now - first) / (tokens - times.tokens))
        counts = map(_list, (result.prompt_tokens, result.tokens, result.forwards))
        seconds = (moment - times.came for moment in (began, first, now))
        stop = result.stop_reason if how in ("done", "error") else how
        requests.info(
            "%s %s method=%s stop=%s prompt_tokens=%s tokens=%s forwards=%s rounds=%d"
            " queue=%.3f first=%.3f seconds=%.3f",
            *(name, how, method, stop, *counts, len(result.rounds), *seconds),
        )

    def text(self) -> str:
        """Return the metrics in Prometheus's text format."""
        return generate_latest(self._registry).decode()


def _list(counts: Sequence[int]) -> str:
    return ",".join(map(str, counts))
