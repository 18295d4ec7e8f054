"""The heartbeat: a worker's beats, the leases they prolong, and letting go before a lease ends.

The beat runs on the worker's event loop: a blocked loop falls silent, as it should. When a command elsewhere may have
taken a process, the worker checks at once which of its processes it still owns: the fence keeps a worker that has lost
a process from writing, this check keeps the steps of that process from running on. All of it is done in the name of one
incarnation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure import limits
from perdure.clock import SECOND, microseconds
from perdure.errors import StoreUnavailable
from perdure.kernel.clock import STEP
from perdure.kernel.names import id_text
from perdure.kernel.worker import Beat, LeaseRenewal
from perdure.logs import logger
from perdure.loop import Loop
from perdure.runtime import handing_back, published, release

if TYPE_CHECKING:
    from perdure.runtime.events import WorkerEvents
    from perdure.runtime.instance import Instance
    from perdure.runtime.parts import WorkerParts
    from perdure.runtime.scheduler import Scheduler


log = logger("worker")


class Heartbeat:
    """Beats every few seconds; renews the rows that will lapse soon, so that short processes never pay for it.

    Until ``sure_until`` (monotonic) no sweep may take this incarnation for silent.
    ``lead`` is how many microseconds the store's time was ahead of its machine's clock at the last beat.
    ``figures`` are told with each beat.
    """

    def __init__(self, parts: WorkerParts, scheduler: Scheduler, events: WorkerEvents) -> None:
        self.incarnation = parts.incarnation
        self.store = parts.store
        self.scheduler = scheduler
        self.events = events
        self.beat_seconds = beat = parts.options.beat_seconds
        self.silence = microseconds(scheduler.lease_seconds)
        self.loop = Loop("heartbeat", self._tick, scheduler.committer.outage, after_error=beat / 6)
        self.guard = Loop("lease guard", self._guard)
        self.sure_until = 0.0
        self._failing = False
        self._steady_from = 0.0
        self.lead = 0
        self.figures = parts.figures

    async def _tick(self) -> float:
        if self.incarnation.lost:
            return self.beat_seconds / 6
        renewals = tuple(self._renewal(instance) for instance in self._lapsing())
        sent = self.scheduler.time.monotonic()
        incarnation = self.incarnation.id
        try:
            answer = await self.store.beat(
                Beat(incarnation, renewals, self.scheduler.lease, self.silence, figures=self._figures())
            )
        except StoreUnavailable:
            self._failing = True
            self.scheduler.telemetry.count("store_errors")
            for renewal in renewals:
                instance = self.scheduler.instances.get(renewal.process)
                if instance is not None:
                    _write_again(instance, renewal)
            raise
        self.scheduler.committer.outage.ended()
        if self._failing:
            self._failing = False
            self._steady_from = self.scheduler.time.monotonic() + limits.PROBE_GRACE_SECONDS
        self.scheduler.telemetry.took("beat", self.scheduler.time.monotonic() - sent)
        self.scheduler.time.heard(answer.now, sent)
        self._keep_in_step(answer.lead)
        if not answer.alive:
            self.events.retired(incarnation)
            return self.beat_seconds
        self.sure_until = sent + self.scheduler.lease_seconds
        if answer.schema_ahead:
            self.scheduler.unreadable.handover.saw(answer.schema_ahead, outgrown=answer.outgrown)
        lost, skipped = set(answer.lost), set(answer.skipped)
        for renewal in renewals:
            instance = self.scheduler.instances.get(renewal.process)
            if instance is None and renewal.process not in lost:
                self.events.strayed()  # let go while this beat was under way, which has renewed its lease
            if instance is None or instance.process.token != renewal.token:
                continue
            if renewal.process in lost:
                self._lose(instance)
            elif renewal.process in skipped:  # its lease goes on towards its end, where the guard lets it go
                _write_again(instance, renewal)
            else:
                instance.renewed(sent + self.scheduler.lease_seconds)
        return self.beat_seconds / 6 if skipped else self.beat_seconds

    def _figures(self) -> bytes:
        scheduler = self.scheduler
        held = len(scheduler.instances) + len(scheduler.starting)
        return self.figures.now(scheduler.time.now(), held, scheduler.telemetry.counters).encode()

    def _keep_in_step(self, lead: int) -> None:
        """Warn if the clock of the store's machine was put back: the store's time then runs ahead of that clock."""
        if lead > self.lead + STEP:
            self.scheduler.telemetry.count("clocks_put_back")
            log.warning(
                "the clock of the store's machine was put back: the store's time goes on %.1f s ahead of it, and what "
                "was due meanwhile has been done. `perdure clock` shows both, and `perdure clock mend` corrects it",
                lead / SECOND,
            )
        self.lead = lead

    def steady(self) -> bool:
        """Whether no beat has failed for a while: while the store was away, no worker could beat."""
        return not self._failing and self.scheduler.time.monotonic() >= self._steady_from

    def _lapsing(self) -> list[Instance]:
        """The processes whose lease has less than two thirds left; none past its deadline is renewed (rule 14)."""
        soon = self.scheduler.time.monotonic() + self.scheduler.lease_seconds * 2 / 3
        now = self.scheduler.time.now()
        return [
            instance
            for instance in self.scheduler.instances.values()
            if instance.lease_end < soon and (not release.passed(instance, now) or release.spared(instance))
        ]

    def _renewal(self, instance: Instance) -> LeaseRenewal:
        """The renewal of one row, with what its steps have reported if that has changed.

        If values that were published before are not written yet, their commit tells both: else the next attempt would
        go on after what nobody was told of.
        """
        put_off = published.unwritten(instance)
        progress = instance.steps.progress(put_off=put_off)
        if put_off or progress == instance.process.progress:
            progress = None
        else:  # at once: a commit that is made while the beat is under way must not write the old progress
            instance.show(progress)
        return LeaseRenewal(instance.process.id, instance.process.token, progress)

    async def _guard(self) -> float:
        """Stop the steps of rows whose lease is about to end: no worker acts on a lease that it may have lost."""
        instances = self.scheduler.instances
        margin = min(limits.LEASE_MARGIN_SECONDS, self.scheduler.lease_seconds / 4)
        edge = self.scheduler.time.monotonic() + margin
        for instance in [a for a in instances.values() if a.lease_end < edge]:
            self._lose(instance)
            # In the store its lease may last longer, if the claim or renewal was carried out long after it was sent.
            # It is freed before another is claimed: of suspects, the death of the other would count against both.
            self.events.strayed()
        release.let_go(self.scheduler)
        handing_back.let_go_what_waits(self.scheduler)
        return margin / 3

    def _lose(self, instance: Instance) -> None:
        self.scheduler.telemetry.count("leases_lost")
        self.scheduler.drop(instance)


def _write_again(instance: Instance, renewal: LeaseRenewal) -> None:
    """Let the next beat write the progress that this renewal was to write."""
    if renewal.progress is not None:
        instance.show(None)


GAP_SECONDS = 0.05
"""Looks at named processes follow each other no faster than this."""
BLIND_GAP_SECONDS = 0.5
"""Looks at all with steps in flight, after a hint that names no process, follow each other no faster than this.

So do looks at processes whose rows another session locked at the last look."""
CALM_SECONDS = 0.25
"""After such a hint, a process that has just committed is checked this much later: its next commit may tell as well."""


class LeaseCheck:
    """Renews the leases of processes in doubt, by a beat between the beats: its answer tells which were lost."""

    def __init__(self, parts: WorkerParts, scheduler: Scheduler, events: WorkerEvents) -> None:
        self.incarnation = parts.incarnation
        self.store = parts.store
        self.scheduler = scheduler
        self.events = events
        self.loop = Loop("lease check", self._tick, scheduler.committer.outage)
        self._named: set[bytes] = set()
        self._since: float | None = None

    def doubt(self, processes: Sequence[bytes] = ()) -> None:
        """A command or a worker may have taken these processes from us, or any if none is named: look soon."""
        if processes:
            self._named.update(processes)
        else:
            self._since = self.scheduler.time.monotonic()
        self.loop.wake()

    async def _tick(self) -> float:
        named, self._named = self._named, set()
        since, self._since = self._since, None
        if not named and since is None:
            return limits.IDLE_WAIT_SECONDS
        instances = self.scheduler.instances
        doubtful = [instance for id in named if (instance := instances.get(id)) is not None and instance.commit is None]
        waiting = False
        if since is not None:
            older, waiting = self._unconfirmed(since)
            doubtful += (instance for instance in older if instance.process.id not in named)
        if waiting:
            self._since = since
        try:
            skipped = await self._look(doubtful) if doubtful else ()
        except StoreUnavailable:  # they are still in doubt
            self._named |= named
            self._since = since if self._since is None else self._since
            raise
        self._named.update(skipped)
        await asyncio.sleep(GAP_SECONDS if since is None and not skipped else BLIND_GAP_SECONDS)
        return 0.0

    def _unconfirmed(self, since: float) -> tuple[list[Instance], bool]:
        """Processes with steps in flight whose leases were not renewed since then; and whether more follow later."""
        lease = self.scheduler.lease_seconds
        calm = self.scheduler.time.monotonic() + lease - CALM_SECONDS
        doubtful = [
            instance
            for instance in self.scheduler.instances.values()
            if instance.steps.in_flight and instance.commit is None and instance.lease_end < since + lease
        ]
        calmed = [instance for instance in doubtful if instance.lease_end < calm]
        return calmed, len(calmed) < len(doubtful)

    async def _look(self, doubtful: Sequence[Instance]) -> Sequence[bytes]:
        """Renew the leases of these, and drop those that are lost; the answer is those whose rows are locked."""
        scheduler = self.scheduler
        renewals = tuple(LeaseRenewal(one.process.id, one.process.token, None) for one in doubtful)
        sent = scheduler.time.monotonic()
        answer = await self.store.beat(Beat(self.incarnation.id, renewals, scheduler.lease, scheduler.lease))
        scheduler.time.heard(answer.now, sent)
        if not answer.alive:
            return ()  # the next beat gets the same answer, and acts on it
        lost, skipped = set(answer.lost), set(answer.skipped)
        for instance, renewal in zip(doubtful, renewals, strict=True):
            if renewal.process not in scheduler.instances and renewal.process not in lost:
                self.events.strayed()  # let go while this beat was under way, which has renewed its lease
            if instance.gone or instance.process.token != renewal.token:
                continue
            if renewal.process in lost:
                log.info("process %s was taken from us: its steps are stopped", id_text(renewal.process))
                scheduler.telemetry.count("leases_lost")
                scheduler.drop(instance)
            elif renewal.process not in skipped:
                instance.renewed(sent + scheduler.lease_seconds)
        return answer.skipped
