"""What Prometheus reads: what was decoded, and what waits."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from adafuse.serve.decoder import DecodingThread


class _Collected(Collector):
    def __init__(self, decoder: DecodingThread) -> None:
        self._decoder = decoder

    def collect(self) -> Iterable[Metric]:
        decoder, counts = self._decoder, self._decoder.counts
        yield GaugeMetricFamily("adafuse_waiting", "Prompts that wait.", decoder.waiting)
        yield GaugeMetricFamily("adafuse_running", "Prompts being decoded.", decoder.running)
        ended = CounterMetricFamily("adafuse_prompts", "Prompts that ended.", labels=["how"])
        for how in ("done", "error", "late", "gone"):
            ended.add_metric([how], counts.ended.get(how, 0))
        yield ended
        for name, what, values in (
            ("adafuse_tokens", "Tokens of the texts.", counts.tokens),
            ("adafuse_forwards", "Forward passes that prompts took part in.", counts.forwards),
        ):
            family = CounterMetricFamily(name, what, labels=["model"])
            for model, value in zip(decoder.models, values, strict=True):
                family.add_metric([model.name], value)
            yield family
        yield CounterMetricFamily("adafuse_rounds", "Joint decisions.", counts.rounds)
        yield CounterMetricFamily(
            "adafuse_agreed_rounds", "Rounds with one candidate.", counts.agreed
        )


def metrics(decoder: DecodingThread) -> str:
    """Return the metrics in Prometheus's text format."""
    registry = CollectorRegistry()
    registry.register(_Collected(decoder))
    return generate_latest(registry).decode()
