"""The supervisor: finds what is overdue and issues the ordinary command that frees it. Every worker hosts one.

Two supervisors at work at once do no harm: whatever they write is fenced, so each finding is counted once.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from types import ModuleType

from perdure import limits
from perdure.errors import StoreUnavailable
from perdure.loop import Loop
from perdure.runtime.sweep_log import SweepLog
from perdure.runtime.sweep_round import began
from perdure.runtime.sweeps import (
    finished_long_ago,
    lease_lapsed,
    owner_gone,
    process_idle,
    process_overdue,
    process_set_back,
    record_unsound,
    signal_overlooked,
    unhosted,
    worker_dead,
    worker_silent,
)
from perdure.runtime.sweeps.context import SweepContext
from perdure.store.base import Overdue

EMPTYING: tuple[ModuleType, ...] = (owner_gone, lease_lapsed, process_overdue, process_idle, finished_long_ago)
"""The sweeps that leave less to find after each round: while one finds something, its next round follows at once,
whether or not other supervisors were quicker with a part of it."""

AUDITS: tuple[ModuleType, ...] = (record_unsound,)
"""The sweeps that free nothing, and only check: each begins somewhere in its first period, so that workers that start
together do not all check the same records at once, and none starts later for it."""


class Supervisor:
    """Runs every sweep at its own pace, a bounded batch at a time."""

    def __init__(self, context: SweepContext) -> None:
        self.context = context
        self._looks = worker_dead.Looks()
        self._place = record_unsound.Position()
        self._known = unhosted.Known()
        self._letters = signal_overlooked.Look()
        self._periods: dict[str, float] = {}
        self.log = SweepLog(context, self._periods)
        self.loops = [
            self._loop(process_set_back, partial(process_set_back.sweep, context)),
            self._loop(worker_dead, self.probe),
            self._loop(worker_silent, partial(worker_silent.sweep, context)),
            self._loop(record_unsound, partial(record_unsound.sweep, context, self._place)),
            self._loop(unhosted, partial(unhosted.sweep, context, self._known)),
            self._loop(signal_overlooked, partial(signal_overlooked.sweep, context, self._letters)),
            *(self._loop(sweep, partial(sweep.sweep, context)) for sweep in EMPTYING),
        ]

    def start(self, *, alone: bool = False) -> None:
        """Begin all sweeps; in a worker that runs ``alone`` only the first two, without which it knows too little.

        One holds the processes that only this worker knows as set back. The other reads which workers live, since one
        of them may be newer than this one.
        """
        for loop in self.loops[:2] if alone else self.loops:
            loop.start()
        self.context.store.backend.failover().when_found(self.loops[0].wake)
        if not (alone or self.context.machine.simulated):
            self.log.loop.start()

    async def stop(self) -> None:
        """Stop all sweeps; what they left undone, the next supervisor finds again."""
        for loop in (self.log.loop, *self.loops):
            await loop.stop()

    def _loop(self, sweep: ModuleType, round: Callable[[], Awaitable[int]]) -> Loop:
        counter: str = sweep.COUNTER
        name = sweep.__name__.rpartition(".")[2].replace("_", " ")
        seconds: float = self.context.paces.get(name, sweep.SECONDS)
        self._periods[name] = seconds

        async def tick() -> float:
            under_way = began(self.context.time.monotonic())
            self.log.began(name, under_way)
            try:
                found = await round()
            except Exception as error:
                self.log.failed(name, error)
                self.context.telemetry.sweep_failed(name)
                if isinstance(error, StoreUnavailable):
                    self.context.telemetry.count("store_errors")
                raise  # the loop logs it and goes on: nothing is lost, since the next round finds the rows again
            self.log.passed(name, under_way, found)
            self.context.telemetry.swept(name, under_way.seen, found, under_way.left)
            self.context.telemetry.took("sweep", self.context.time.monotonic() - under_way.since)
            if found:
                self.context.telemetry.count(counter, found)
            if found and sweep in EMPTYING:
                return 0.0
            return self._pace(sweep, seconds) * (0.9 + 0.2 * self.context.machine.random())

        first = seconds * self.context.machine.random() if sweep in AUDITS else 0.0
        return Loop(f"sweep {name}", tick, self.context.committer.outage, first_after=first)

    def _pace(self, sweep: ModuleType, seconds: float) -> float:
        """Seconds until a sweep looks again: fewer if a page follows its last one, or a second look is owed."""
        if sweep is worker_dead and self._looks.free:
            return worker_dead.AGAIN_SECONDS
        if sweep is record_unsound:
            return self._place.wait
        what: Overdue | None = getattr(sweep, "OVERDUE", None)
        more = (
            self.context.pages[what].more
            if what
            else sweep is finished_long_ago and finished_long_ago.more(self.context)
        )
        return min(seconds, limits.SWEEP_PAGE_SECONDS) if more else seconds

    async def probe(self) -> int:
        """Look for dead workers; in the grace after sessions were lost, for those that have come back (rule 12)."""
        since = self.context.store.backend.standing_since
        self._looks.standing(since)
        if since == math.inf:
            return 0
        return await worker_dead.sweep(self.context, self._looks, in_grace=self.context.grace() > 0)
