"""The monitor of an engine: its metrics and traces, if it has them, and what is read for them from time to time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from perdure import limits
from perdure.clock import SECOND, Computer
from perdure.kernel.breaker import CLOSED, HALF_OPEN, OPEN, Circuit
from perdure.loop import Loop
from perdure.monitoring.series import OTHER
from perdure.runtime.committer import Committer
from perdure.runtime.store_time import StoreTime
from perdure.store.base import Store
from perdure.telemetry import Telemetry

if TYPE_CHECKING:
    from perdure.client.queue_figures import QueueFigures
    from perdure.monitoring.metrics import Gauge, Metrics
    from perdure.monitoring.prometheus import PrometheusCollector
    from perdure.monitoring.traces import Traces
    from perdure.runtime.observed import Observer
    from perdure.runtime.worker import Worker


class Monitor:
    """What hears an engine: its ``metrics``, collected by a registry, and its ``traces``, each None if not wanted.

    ``observers`` are those that are wanted; ``telemetry`` has the counters of the engine in any case.

    The libraries are imported only if they are wanted. Raises DefinitionError if one is missing, or what is given is no
    registry, or no provider.
    """

    def __init__(self, registry: Any, provider: Any) -> None:
        self.metrics: Metrics | None = None
        self.traces: Traces | None = None
        self._collector: PrometheusCollector | None = None
        self._worker: Worker | None = None
        self._loop: Loop | None = None
        self._queues: list[Gauge] = []
        self._breakers: list[Gauge] = []
        if provider is not None:
            from perdure.monitoring.traces import Traces

            self.traces = Traces(provider)
        if registry is not None:
            from perdure.monitoring.metrics import Metrics
            from perdure.monitoring.prometheus import PrometheusCollector

            self.metrics = Metrics(self._gauges)
            self._collector = PrometheusCollector(registry, self.metrics)

        self.telemetry = Telemetry() if self.metrics is None else self.metrics.telemetry
        self.observers: tuple[Observer, ...] = tuple(one for one in (self.metrics, self.traces) if one is not None)

    def open(self) -> None:
        """Let the registry collect the engine; raises DefinitionError if it collects another one."""
        if self._collector is not None:
            self._collector.open()

    def committer(self, store: Store, time: StoreTime, machine: Computer, telemetry: Telemetry) -> Committer:
        """The committer of the engine, which tells the observers what it has written, if there are any."""
        if not self.observers:
            return Committer(store, time, machine, telemetry)
        from perdure.runtime.observed import ObservedCommitter, TracedCommitter

        if self.traces is None:
            committer = ObservedCommitter(store, time, machine, telemetry)
        else:
            committer = TracedCommitter(store, time, machine, telemetry)
            committer.tracer = self.traces
        committer.observers = self.observers
        return committer

    def follow(self, worker: Worker) -> None:
        """Read now and then what waits in the queues, and how breakers stand, while this worker works."""
        self._worker = worker
        if self.metrics is not None:
            from perdure.client.queue_figures import queue_figures

            read = partial(self._read, worker.store, partial(queue_figures, worker.store))
            self._loop = Loop("stored figures", read, worker.scheduler.committer.outage)
            self._loop.start()

    async def close(self) -> None:
        """Read nothing more, and let the registry forget the engine."""
        self._worker = None
        if self._loop is not None:
            await self._loop.stop()
        if self._collector is not None:
            self._collector.close()

    async def _read(self, store: Store, figures: Callable[[], Awaitable[Sequence[QueueFigures]]]) -> float:
        self._breakers = _states(await store.records(Circuit))
        rows: dict[str, list[float]] = {}
        for one in sorted(await figures(), key=attrgetter("waiting"), reverse=True):
            label = one.name if len(rows) < limits.METRIC_SERIES_RECORDS else OTHER
            row = rows.setdefault(label, [0, 0, 0, 0, 0])
            row[:] = (
                row[0] + one.waiting, row[1] + one.running, row[2] + one.delayed, max(row[3], one.oldest),
                row[4] + one.workers,
            )  # fmt: skip
        self._queues = [
            (metric, (label,), value)
            for label, values in rows.items()
            for metric, value in zip(_QUEUE_GAUGES, values, strict=True)
        ]
        return limits.STORED_FIGURES_SECONDS

    def _gauges(self) -> Iterator[Gauge]:
        worker = self._worker
        if worker is not None:
            held, slots = worker.busy, worker.options.in_flight
            yield "perdure_worker_slots", (), slots
            yield "perdure_worker_slots_free", (), max(0, slots - held)
            yield "perdure_worker_held", (), held
            yield "perdure_worker_last_poll_timestamp_seconds", (), worker.parts.figures.polled_at / SECOND
            yield "perdure_store_clock_ahead_seconds", (), worker.heartbeat.lead / SECOND
            yield from self._queues
            yield from self._breakers


def _states(circuits: Sequence[Circuit]) -> list[Gauge]:
    """The gauges of breakers; of too many, those that are open have series of their own."""
    levels: dict[str, int] = {}
    for level, name in sorted(((_LEVELS.get(one.state, 0), one.name) for one in circuits), key=lambda one: -one[0]):
        label = name if len(levels) < limits.METRIC_SERIES_RECORDS else OTHER
        levels[label] = max(level, levels.get(label, 0))
    return [("perdure_breaker_state", (label,), level) for label, level in levels.items()]


_LEVELS = {CLOSED: 0, HALF_OPEN: 1, OPEN: 2}
_QUEUE_GAUGES = (
    "perdure_queue_depth",
    "perdure_queue_running",
    "perdure_queue_delayed",
    "perdure_queue_oldest_seconds",
    "perdure_queue_workers",
)
