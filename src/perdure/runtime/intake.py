"""The intake: claims due processes while there is room, and looks again exactly when the next one is due."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from perdure import limits
from perdure.authoring.registry import Registry
from perdure.errors import StoreUnavailable
from perdure.kernel.lease import Claim, ClaimAnswer
from perdure.loop import Loop
from perdure.runtime.incarnation import Incarnation
from perdure.runtime.scheduler import Scheduler
from perdure.store.base import Store


class Intake:
    """One loop: claim, adopt, then wait for a hint, the next due time, or a second (the safety net).

    ``ended`` is called when the store says that this incarnation was ended; ``suspects`` when suspects are due.
    """

    def __init__(self, incarnation: Incarnation, store: Store, registry: Registry, scheduler: Scheduler) -> None:
        self.incarnation = incarnation
        self.store = store
        self.registry = registry
        self.scheduler = scheduler
        self.capacity = limits.IN_FLIGHT_PROCESSES
        self.alone = False
        self.ended: Callable[[], None] = lambda: None
        self.suspects: Callable[[], None] = lambda: None
        self.loop = Loop("intake", self._tick)
        self.reconcile: Callable[[], Awaitable[int]] | None = None
        self.claimed_any = asyncio.Event()
        self._next: int | None = None
        self._unsure = False

    def waiting(self, due_at: int) -> None:
        """A row was let go here that is due at ``due_at``: look again by then."""
        if self._next is None or due_at < self._next:
            self._next = due_at
            self.loop.wake()

    async def _tick(self) -> float:
        room = self.capacity - len(self.scheduler.hand)
        if self.scheduler.draining or not self.registry.hosted:
            return limits.POLL_SECONDS
        if room <= 0:
            return 0.01
        if self._unsure and self.reconcile is not None:
            await self.reconcile()
            self._unsure = False
        try:
            answer = await self.claim(min(room, limits.CLAIM_ROWS))
        except StoreUnavailable:
            self._unsure = True  # the claim may have been applied: rows that we own but do not hold must be freed
            self.scheduler.telemetry.count("store_errors")
            raise
        if len(answer.claimed) == min(room, limits.CLAIM_ROWS):
            return 0.0
        self._next = answer.next_due_at
        if self._next is None:
            return limits.POLL_SECONDS
        wait = (self._next - self.scheduler.time.now()) / 1_000_000
        return min(limits.POLL_SECONDS, max(wait, 0.001))

    async def claim(self, limit: int) -> ClaimAnswer:
        """Claim up to ``limit`` processes and take them in hand."""
        sent = self.scheduler.time.monotonic()
        claim = Claim(self.incarnation.id, self.registry.hosted, limit, self.scheduler.lease, alone=self.alone)
        answer = await self.store.claim(claim)
        self.scheduler.telemetry.took("claim", self.scheduler.time.monotonic() - sent)
        self.scheduler.time.heard(answer.now)
        if not answer.alive:
            self.ended()
            return answer
        if answer.claimed:
            self.claimed_any.set()
        for claimed in answer.claimed:
            self.scheduler.adopt(claimed, sent)
        if answer.suspects and not self.alone:
            self.suspects()
        return answer
