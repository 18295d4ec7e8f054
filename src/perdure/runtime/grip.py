"""The grip: whether the processes in hand are still ours, looked at when a command elsewhere may have taken one.

The fence keeps a worker that has lost a process from writing. This keeps its steps from running on meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from perdure import limits
from perdure.kernel.names import id_text
from perdure.kernel.worker import Beat, Renewal
from perdure.loop import Loop
from perdure.runtime.activation import Activation
from perdure.runtime.incarnation import Incarnation
from perdure.runtime.scheduler import Scheduler
from perdure.store.base import Store

log = logging.getLogger("perdure")

GAP_SECONDS = 0.05
"""Looks at named processes follow each other no faster than this."""
BLIND_GAP_SECONDS = 0.5
"""Looks at all that has steps in flight, where nobody says whose process was taken, follow no faster than this."""
CALM_SECONDS = 0.25
"""Where nobody is named, who has just written is asked later: he may be about to write again, which tells too."""


class Grip:
    """Renews the leases of those in doubt, by a beat between the beats: its answer tells which were lost."""

    def __init__(self, incarnation: Incarnation, store: Store, scheduler: Scheduler) -> None:
        self.incarnation = incarnation
        self.store = store
        self.scheduler = scheduler
        self.strayed: Callable[[], None] = lambda: None
        self.loop = Loop("grip", self._tick)
        self._named: set[bytes] = set()
        self._since: float | None = None

    def doubt(self, processes: Sequence[bytes] = ()) -> None:
        """Somebody may have taken these from us, or any if none is named: look soon."""
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
        hand = self.scheduler.hand
        doubtful = [
            activation for id in named if (activation := hand.get(id)) is not None and activation.commit is None
        ]
        waiting = False
        if since is not None:
            older, waiting = self._unconfirmed(since)
            doubtful += (activation for activation in older if activation.process.id not in named)
        if waiting:
            self._since = since
        if doubtful:
            await self._look(doubtful)
        await asyncio.sleep(GAP_SECONDS if since is None else BLIND_GAP_SECONDS)
        return 0.0

    def _unconfirmed(self, since: float) -> tuple[list[Activation], bool]:
        """Those with steps in flight that were not known to be ours at that time; whether others follow later."""
        lease = self.scheduler.lease_seconds
        calm = self.scheduler.time.monotonic() + lease - CALM_SECONDS
        doubtful = [
            activation
            for activation in self.scheduler.hand.values()
            if activation.in_flight and activation.commit is None and activation.lease_end < since + lease
        ]
        calmed = [activation for activation in doubtful if activation.lease_end < calm]
        return calmed, len(calmed) < len(doubtful)

    async def _look(self, doubtful: Sequence[Activation]) -> None:
        scheduler = self.scheduler
        renewals = tuple(Renewal(one.process.id, one.process.token, None) for one in doubtful)
        sent = scheduler.time.monotonic()
        answer = await self.store.beat(Beat(self.incarnation.id, renewals, scheduler.lease, scheduler.lease))
        scheduler.time.heard(answer.now, sent)
        if not answer.alive:
            return  # the next beat hears it too, and acts
        lost = set(answer.lost)
        for activation, renewal in zip(doubtful, renewals, strict=True):
            if renewal.process not in scheduler.hand and renewal.process not in lost:
                self.strayed()  # let go while this was under way, which has given it another lease
            if activation.gone or activation.process.token != renewal.token:
                continue
            if renewal.process in lost:
                log.info("process %s was taken from us: its steps are stopped", id_text(renewal.process))
                scheduler.telemetry.count("leases_lost")
                scheduler.drop(activation)
            else:
                activation.lease_end = max(activation.lease_end, sent + scheduler.lease_seconds)
