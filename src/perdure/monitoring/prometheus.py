"""Metrics for Prometheus: a collector for a registry of prometheus-client, which asks when it is scraped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from perdure.errors import DefinitionError
from perdure.monitoring.catalogue import LABELLED, METRICS, RECOVERIES
from perdure.monitoring.metrics import Metrics
from perdure.telemetry import COUNTERS

try:
    from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise DefinitionError(
        "metrics need the library prometheus-client. Install it: pip install 'perdure[prometheus]'"
    ) from error

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def registry_of_program() -> CollectorRegistry:
    """A registry with what prometheus-client tells of an OS process: memory, processor time, open files."""
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry


def exposition(registry: CollectorRegistry) -> bytes:
    """All metrics of a registry in the text format of Prometheus."""
    return generate_latest(registry)


class PrometheusCollector(Collector):
    """The metrics of one engine as families of Prometheus; ``registry`` collects them while the engine is open.

    Raises DefinitionError if it is no registry.
    """

    def __init__(self, registry: Any, metrics: Metrics) -> None:
        if not isinstance(registry, CollectorRegistry):
            raise DefinitionError(
                f"metrics={registry!r:.100} is no registry. Give prometheus_client.REGISTRY or a CollectorRegistry()."
            )
        self._registry = registry
        self._metrics = metrics
        self._collected = False

    def open(self) -> None:
        """Let the registry collect them; raises DefinitionError if it collects those of another engine."""
        try:
            self._registry.register(self)
        except ValueError:
            raise DefinitionError(
                "this registry collects the metrics of another engine already. Give each engine a CollectorRegistry()."
            ) from None
        self._collected = True

    def close(self) -> None:
        """Let the registry forget them."""
        if self._collected:
            self._collected = False
            self._registry.unregister(self)

    def describe(self) -> Iterator[Metric]:
        """The families without their values, by whose names a registry refuses a second engine."""
        for name, metric in METRICS.items():
            yield _FAMILIES[metric.kind](name, metric.meaning, labels=metric.labels)

    def collect(self) -> Iterator[Metric]:
        """The families as they are now."""
        for counts in self._metrics.counters():
            yield self._counter(counts.name, list(counts.values.items()))
        for histograms in self._metrics.histograms():
            metric = METRICS[histograms.name]
            family = HistogramMetricFamily(histograms.name, metric.meaning, labels=metric.labels)
            for labels, buckets, total in histograms:
                family.add_metric(labels, buckets, total)
            yield family
        counters = self._metrics.telemetry.counters
        for name in (one for one in COUNTERS if f"perdure_{one}" not in LABELLED):
            yield self._counter(f"perdure_{name}", [((), counters[name])])
        causes = [((cause,), sum(counters[name] for name in names)) for cause, names in RECOVERIES.items()]
        yield self._counter("perdure_recoveries", causes)
        gauges: dict[str, Any] = {}
        for name, labels, value in self._metrics.gauges():
            if name not in gauges:
                gauges[name] = GaugeMetricFamily(name, METRICS[name].meaning, labels=METRICS[name].labels)
            gauges[name].add_metric(labels, value)
        yield from gauges.values()

    def _counter(self, name: str, values: Sequence[tuple[tuple[str, ...], int]]) -> CounterMetricFamily:
        metric = METRICS[name]
        family = CounterMetricFamily(name, metric.meaning, labels=metric.labels)
        for labels, value in values:
            family.add_metric(labels, value)
        return family


_FAMILIES: dict[str, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
