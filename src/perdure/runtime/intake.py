"""The intake: claims due processes while there is room, and looks again exactly when the next one is due."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

from perdure import limits
from perdure.authoring.registry import Registry
from perdure.errors import StoreUnavailable
from perdure.kernel.lease import Claim, ClaimAnswer
from perdure.loop import Loop
from perdure.runtime.incarnation import Incarnation
from perdure.runtime.outbox import rests
from perdure.runtime.scheduler import Scheduler
from perdure.store.base import Store

BREATH_SECONDS = 0.02
"""Histories are replayed for this long before the event loop gets its turn."""
RESTING_TIMES = 4
"""No worker has more than so many times its capacity in hand, however many wait for children."""


class Intake:
    """One loop: claim, adopt, then wait for a hint, the next due time, or a second (the safety net).

    ``ended`` is called when the store says that this incarnation was ended; ``suspects`` when suspects are due.
    ``unsure`` says that a claim may have been applied whose rows were not taken in hand: ``reconcile`` frees them.
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
        self.unsure = False
        self._next: int | None = None
        self._in_vain = 0

    def waiting(self, due_at: int) -> None:
        """A row was let go here that is due at ``due_at``: look again by then."""
        if self._next is None or due_at < self._next:
            self._next = due_at
            self.loop.wake()

    async def _tick(self) -> float:
        if self.scheduler.draining or not self.registry.hosted:
            return limits.POLL_SECONDS
        room = self._room()
        if room <= 0:
            return 0.01
        if self.unsure and self.reconcile is not None:
            await self.reconcile()
        self.unsure = True
        answers: list[ClaimAnswer] = []
        full = False
        try:
            for hosted, most in self._offers(room):
                asked = min(most, limits.CLAIM_ROWS)
                answers.append(await self.claim(hosted, asked))
                full = full or len(answers[-1].claimed) == asked
        except StoreUnavailable:
            self.scheduler.telemetry.count("store_errors")
            raise
        self.unsure = False
        return 0.0 if full else self._until(answers)

    def _room(self) -> int:
        """How many more processes may be taken in hand: those that only wait for children leave room to these."""
        hand = self.scheduler.hand
        room = self.capacity - len(hand)
        if room <= 0:
            resting = sum(map(rests, hand.values()))
            room = min(room + resting, RESTING_TIMES * self.capacity - len(hand))
        return room

    def _offers(self, room: int) -> Iterator[tuple[tuple[tuple[str, str], ...], int]]:
        """What to claim, and how much of it: each limited queue by itself, the rest together."""
        limited = {kind: queue.at_most for kind, queue in self.registry.queues.items() if queue.at_most is not None}
        hosted = self.registry.hosted
        yield tuple(pair for pair in hosted if pair[0] not in limited) if limited else hosted, room
        for kind, most in limited.items():
            held = sum(activation.process.kind == kind for activation in self.scheduler.hand.values())
            if held < most:
                yield tuple(pair for pair in hosted if pair[0] == kind), min(room, most - held)

    def parted(self) -> None:
        """A process was let go: a limited queue may have room again."""
        if self.registry.limited:
            self.loop.wake()

    def _until(self, answers: Sequence[ClaimAnswer]) -> float:
        """Seconds until the next look. What is due and was not given to us is locked by somebody: ask ever less."""
        self._next = min((one.next_due_at for one in answers if one.next_due_at is not None), default=None)
        if self._next is None:
            return limits.POLL_SECONDS
        wait = (self._next - self.scheduler.time.now()) / 1_000_000
        claimed = any(one.claimed for one in answers)
        self._in_vain = self._in_vain + 1 if wait <= 0 and not claimed else 0
        return min(limits.POLL_SECONDS, max(wait, 0.001 * 2.0 ** min(self._in_vain, 10)))

    async def claim(self, hosted: tuple[tuple[str, str], ...], limit: int) -> ClaimAnswer:
        """Claim up to ``limit`` processes of these kinds and versions, and take them in hand."""
        sent = self.scheduler.time.monotonic()
        claim = Claim(self.incarnation.id, hosted, limit, self.scheduler.lease, alone=self.alone)
        answer = await self.store.claim(claim)
        self.scheduler.telemetry.took("claim", self.scheduler.time.monotonic() - sent)
        self.scheduler.time.heard(answer.now, sent)
        if not answer.alive:
            self.ended()
            return answer
        if answer.claimed:
            self.claimed_any.set()
        breath = self.scheduler.time.monotonic() + BREATH_SECONDS
        for claimed in answer.claimed:
            self.scheduler.adopt(claimed, sent)
            if self.scheduler.time.monotonic() > breath:
                await asyncio.sleep(0)  # long histories: steps, beats and commits go on meanwhile
                breath = self.scheduler.time.monotonic() + BREATH_SECONDS
        if answer.suspects and not self.alone:
            self.suspects()
        return answer
