"""Metrics: what a worker counts by kind, step and queue once somebody collects it; see the catalogue beside this file.

They are kept in plain dictionaries, and become those of Prometheus when it asks: its own objects, with a lock each,
would cost a one-step process several times as much.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from perdure.clock import SECOND
from perdure.kernel.child import QUEUE_MARK
from perdure.kernel.commit import APPLIED, CREATED, Commit, CommitAnswer, Start, StartAnswer
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import FINAL, RUNNING, Process
from perdure.monitoring.catalogue import METRICS
from perdure.monitoring.series import BOUNDS, Counts, Histograms
from perdure.telemetry import Telemetry

if TYPE_CHECKING:
    from perdure.runtime.instance import Instance
    from perdure.runtime.observed import Records, WrittenAnswers
    from perdure.runtime.ready import Ready
    from perdure.runtime.steps.attempt_run import AttemptRun
    from perdure.runtime.store_time import StoreTime

Gauge = tuple[str, tuple[str, ...], float]
"""The name, the labels and the value of something that goes up and down."""

SWEPT = ("sweep_passes", "sweep_rows_seen", "sweep_rows_changed", "sweep_rows_left")
"""What passes of sweeps have done: counted in all, and by sweep."""

STOPS = frozenset(
    {
        EventType.COMPLETED, EventType.FAILED, EventType.CANCELLED, EventType.BROKEN, EventType.HELD,
        EventType.TERMINATED, EventType.EXPIRED,
    }
)  # fmt: skip
"""The events of a process that comes to a stop: it ends, or waits for a person."""


class MeasuredTelemetry(Telemetry):
    """The counters of an engine whose durations are kept as histograms too."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self._metrics = metrics

    def revived(self, kinds: Iterable[str]) -> None:
        """See Telemetry."""
        for kind in kinds:
            self.counters["processes_revived"] += 1
            self._metrics.revived.add((kind,))

    def breaker_opened(self, name: str) -> None:
        """See Telemetry."""
        self.counters["breakers_opened"] += 1
        self._metrics.breakers.add((name,))

    def swept(self, sweep: str, seen: int, changed: int, left: int) -> None:
        """See Telemetry."""
        super().swept(sweep, seen, changed, left)
        for name, by in zip(SWEPT, (1, seen, changed, left), strict=True):
            self._metrics.sweeps[name].add((sweep,), by)

    def sweep_failed(self, sweep: str) -> None:
        """See Telemetry."""
        super().sweep_failed(sweep)
        self._metrics.sweeps["sweep_errors"].add((sweep,))

    def took(self, name: str, seconds: float) -> None:
        """See Telemetry."""
        super().took(name, seconds)
        if name in _PHASES:
            self._metrics.turns.observe((_PHASES[name],), seconds)
        else:
            self._metrics.requests.observe((name,), seconds)


_PHASES = {"replay": "prepare"}


class Metrics:
    """An observer that counts: see :class:`perdure.runtime.observed.Observer`. One belongs to one engine.

    ``gauges`` gives what goes up and down, as it is at that moment.
    """

    def __init__(self, gauges: Callable[[], Iterable[Gauge]] = tuple) -> None:
        self.telemetry = MeasuredTelemetry(self)
        self.started = _counts("perdure_processes_started")
        self.stopped = _counts("perdure_processes_stopped")
        self.revived = _counts("perdure_processes_revived")
        self.breakers = _counts("perdure_breakers_opened")
        self.waits = _histograms("perdure_process_wait_seconds")
        self.ends = _histograms("perdure_process_duration_seconds")
        self.sweeps = {name: _counts(f"perdure_{name}") for name in (*SWEPT, "sweep_errors")}
        self.queue_in = _counts("perdure_queue_in")
        self.queue_out = _counts("perdure_queue_out")
        self.queue_waits = _histograms("perdure_queue_wait_seconds")
        self.queue_ends = _histograms("perdure_queue_duration_seconds")
        self.attempts = _histograms("perdure_step_duration_seconds")
        self.timeouts = _counts("perdure_step_timeouts")
        self.turns = _histograms("perdure_turn_duration_seconds")
        self.requests = _histograms("perdure_store_request_duration_seconds")
        self.gauges = gauges
        self._time_a_turn: Callable[[], None] = lambda: None

    def counters(self) -> Sequence[Counts]:
        """Its families of counters."""
        return (
            self.started, self.stopped, self.revived, *self.sweeps.values(), self.queue_in, self.queue_out,
            self.timeouts, self.breakers,
        )  # fmt: skip

    def histograms(self) -> Sequence[Histograms]:
        """Its families of histograms."""
        return (
            self.waits, self.ends, self.queue_waits, self.queue_ends, self.attempts, self.turns, self.requests
        )  # fmt: skip

    # -- what is heard -------------------------------------------------------------------------------------------

    def written(self, records: Records, answers: WrittenAnswers) -> None:
        """See Observer."""
        self._time_a_turn()
        first: Any = records[0].__class__ if records else None
        pairs: Iterable[Any] = zip(records, answers, strict=True)
        if first is Commit:
            self._committed(pairs)
        elif first is Start:
            self._created(pairs)

    def watch(self, ready: Ready, monotonic: Callable[[], float]) -> None:
        """See Observer: after each batch that the database has answered, one turn is timed; there are many more."""
        cell, plain = self.turns.cell(("process",)), ready.turn

        def run(instance: Instance, now: int) -> None:
            ready.turn = plain
            began = monotonic()
            plain(instance, now)
            seconds = monotonic() - began
            cell[bisect_left(BOUNDS, seconds)] += 1
            cell[-1] += seconds

        self._time_a_turn = partial(setattr, ready, "turn", run)

    def attempted(self, attempt: AttemptRun, seconds: float, failed: bool, time: StoreTime) -> None:
        """See Observer."""
        kind = attempt.instance.process.kind
        queue = kind[1:] if kind[:1] == QUEUE_MARK else ""
        self.attempts.observe((attempt.ask.name, queue, "failed" if failed else "completed"), seconds)

    def timed_out(self, attempt: AttemptRun) -> None:
        """See Observer."""
        kind = attempt.instance.process.kind
        self.timeouts.add((attempt.ask.name, kind[1:] if kind[:1] == QUEUE_MARK else ""))

    def _committed(self, pairs: Iterable[tuple[Commit, CommitAnswer]]) -> None:
        for commit, answer in pairs:
            if answer.verdict is APPLIED:
                after = commit.after
                if commit.version == 0 and after.opened_at is not None:
                    self._began(after.kind, after.opened_at - after.created_at)
                if after.status is not RUNNING:
                    self._stopped(after, commit.events, answer.now)
                for start in commit.starts:
                    self._asked(start.process.kind)

    def _created(self, pairs: Iterable[tuple[Start, StartAnswer]]) -> None:
        """Of a batch most are of one kind, and begin where they are started, without a wait."""
        alike: dict[tuple[str, int | None], int] = {}
        for start, answer in pairs:
            if answer.verdict is CREATED:
                process, opened = start.process, start.process.opened_at
                one = process.kind, None if opened is None else opened - process.created_at
                alike[one] = alike.get(one, 0) + 1
                if process.status is not RUNNING:
                    self._stopped(process, start.events, answer.now)
        for (kind, waited), many in alike.items():
            self._asked(kind, many)
            if waited is not None:
                self._began(kind, waited, many)

    def _asked(self, kind: str, many: int = 1) -> None:
        if kind[:1] == QUEUE_MARK:
            self.queue_in.add((kind[1:],), many)
        else:
            self.started.add((kind,), many)

    def _began(self, kind: str, waited: int, many: int = 1) -> None:
        if kind[:1] == QUEUE_MARK:
            self.queue_waits.observe((kind[1:],), waited / SECOND, many)
        else:
            self.waits.observe((kind,), waited / SECOND, many)

    def _stopped(self, process: Process, events: Sequence[Event], now: int) -> None:
        if not (events and (events[-1].type in STOPS or any(event.type in STOPS for event in events))):
            return  # it had ended before, and a person has released its key
        kind, status = process.kind, process.status  # a text: to ask an enum for its value would cost more
        seconds = (now - process.created_at) / SECOND
        if process.status not in FINAL:
            self.stopped.add((kind, status))
        elif kind[:1] == QUEUE_MARK:
            self.queue_out.add((kind[1:], status))
            self.queue_ends.observe((kind[1:], status), seconds)
        else:
            self.ends.observe((kind, status), seconds)


def _counts(name: str) -> Counts:
    return Counts(name, METRICS[name].open)


def _histograms(name: str) -> Histograms:
    return Histograms(name, METRICS[name].open)
