"""The pulse: a worker's beats, the leases they prolong, and letting go before a lease ends.

The beat runs on the worker's event loop: a blocked loop falls silent, as it should.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec.structs import replace

from perdure import limits
from perdure.clock import SECOND, microseconds
from perdure.errors import StoreUnavailable
from perdure.kernel.clock import STEP
from perdure.kernel.worker import Beat, Renewal
from perdure.loop import Loop
from perdure.runtime import expiry, shortage
from perdure.runtime.activation import Activation
from perdure.runtime.incarnation import Incarnation
from perdure.runtime.scheduler import Scheduler
from perdure.store.base import Store

log = logging.getLogger("perdure")


class Pulse:
    """Beats every few seconds; renews the rows that will lapse soon, so that short processes never pay for it.

    Until ``sure_until`` (monotonic) nobody may take this incarnation for silent.
    ``lead`` is how many microseconds the store's time was ahead of its machine's clock at the last beat.
    """

    def __init__(self, incarnation: Incarnation, store: Store, scheduler: Scheduler, *, beat: float) -> None:
        self.incarnation = incarnation
        self.store = store
        self.scheduler = scheduler
        self.beat_seconds = beat
        self.silence = microseconds(scheduler.lease_seconds)
        self.ended: Callable[[bytes], None] = lambda incarnation: None
        self.strayed: Callable[[], None] = lambda: None
        self.loop = Loop("pulse", self._tick, after_error=beat / 6)
        self.guard = Loop("lease guard", self._guard)
        self.sure_until = 0.0
        self._failing = False
        self._steady_from = 0.0
        self.lead = 0

    async def _tick(self) -> float:
        if self.incarnation.lost:
            return self.beat_seconds / 6
        renewals = tuple(self._renewal(activation) for activation in self._lapsing())
        sent = self.scheduler.time.monotonic()
        incarnation = self.incarnation.id
        try:
            answer = await self.store.beat(Beat(incarnation, renewals, self.scheduler.lease, self.silence))
        except StoreUnavailable:
            self._failing = True
            self.scheduler.telemetry.count("store_errors")
            for renewal in renewals:
                activation = self.scheduler.hand.get(renewal.process)
                if activation is not None and renewal.progress is not None:  # the next beat tells it again
                    activation.process = replace(activation.process, progress=None)
            raise
        if self._failing:
            self._failing = False
            self._steady_from = self.scheduler.time.monotonic() + limits.PROBE_GRACE_SECONDS
        self.scheduler.telemetry.took("beat", self.scheduler.time.monotonic() - sent)
        self.scheduler.time.heard(answer.now, sent)
        self._keep_in_step(answer.lead)
        if not answer.alive:
            self.ended(incarnation)
            return self.beat_seconds
        self.sure_until = sent + self.scheduler.lease_seconds
        if answer.schema_ahead:
            self.scheduler.unreadable.handover.saw(answer.schema_ahead, outgrown=answer.outgrown)
        lost = set(answer.lost)
        for renewal in renewals:
            activation = self.scheduler.hand.get(renewal.process)
            if activation is None and renewal.process not in lost:
                self.strayed()  # let go while this beat was under way, which has given it another lease
            if activation is None or activation.process.token != renewal.token:
                continue
            if renewal.process in lost:
                self._lose(activation)
            else:
                activation.lease_end = max(activation.lease_end, sent + self.scheduler.lease_seconds)
        return self.beat_seconds

    def _keep_in_step(self, lead: int) -> None:
        """Say it loudly when the clock of the store's machine was put back: its time goes on ahead of it."""
        if lead > self.lead + STEP:
            self.scheduler.telemetry.count("clocks_put_back")
            log.warning(
                "the clock of the store's machine was put back: the store's time goes on %.1f s ahead of it, and what "
                "was due meanwhile has been done. `perdure clock` shows it, and mends it",
                lead / SECOND,
            )
        self.lead = lead

    def steady(self) -> bool:
        """Whether no beat has failed for a while: when the store comes back, nobody has been able to beat."""
        return not self._failing and self.scheduler.time.monotonic() >= self._steady_from

    def _lapsing(self) -> list[Activation]:
        """Those in hand whose lease has less than two thirds left; nobody past its deadline is renewed (rule 14)."""
        soon = self.scheduler.time.monotonic() + self.scheduler.lease_seconds * 2 / 3
        now = self.scheduler.time.now()
        return [
            activation
            for activation in self.scheduler.hand.values()
            if activation.lease_end < soon and (not expiry.passed(activation, now) or expiry.spared(activation))
        ]

    def _renewal(self, activation: Activation) -> Renewal:
        """The renewal of one row, with what its steps have reported if that has changed."""
        progress = activation.progress()
        if progress == activation.process.progress:
            progress = None
        else:  # at once: a commit that is made while the beat is under way must not take it back
            activation.process = replace(activation.process, progress=progress)
        return Renewal(activation.process.id, activation.process.token, progress)

    async def _guard(self) -> float:
        """Stop the steps of rows whose lease is about to end: nobody acts on a lease it may have lost."""
        hand = self.scheduler.hand
        margin = min(limits.LEASE_MARGIN_SECONDS, self.scheduler.lease_seconds / 4)
        edge = self.scheduler.time.monotonic() + margin
        for activation in [a for a in hand.values() if a.lease_end < edge]:
            self._lose(activation)
            if self.scheduler.alone:
                self.strayed()  # free it before another suspect is claimed, whose death would count against both
        expiry.let_go(self.scheduler)
        shortage.let_go(self.scheduler)
        return margin / 3

    def _lose(self, activation: Activation) -> None:
        self.scheduler.telemetry.count("leases_lost")
        self.scheduler.drop(activation)
