"""Time that skips by itself: while a test waits and nothing runs, the clock is put forward to what is due next.

Only the wall clock is put forward. The monotonic clock goes on as ever: timeouts of steps and of the test last as
long as they say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime

from perdure import limits
from perdure.client.answers import Answers
from perdure.clock import SECOND, Computer
from perdure.kernel.names import id_text
from perdure.kernel.process import UNFINISHED, Process, Status
from perdure.logs import logger
from perdure.loop import Loop
from perdure.runtime.instance import Instance
from perdure.runtime.worker import Worker
from perdure.store.base import Search

log = logger("process")

LOOK_SECONDS = 0.001
LONGEST_LOOK_SECONDS = 0.05
STUCK_SECONDS = 2.0


class SkippingMachine(Computer):
    """The computer's own machine, except for its wall clock, which begins at ``begins`` and can be put forward."""

    def __init__(self, begins: datetime | None = None) -> None:
        self._ahead = 0 if begins is None else round(begins.timestamp() * SECOND) - super().now()

    def now(self) -> int:
        """The wall clock in microseconds since 1970, with all that was skipped."""
        return super().now() + self._ahead

    def put_forward(self, at: int) -> None:
        """Let it be that time, unless it is later already."""
        self._ahead += max(0, at - self.now())


class Skipper:
    """Puts the clock forward, from one due time to the next, for an engine whose worker is the only one on its store.

    It does so while the test waits: for the end of a process (``awaited`` are their ids), for one of the ``answers`` to
    calls, or for time to pass (:meth:`sleep`). And only while nothing runs: no step, no turn, no write, and nothing is
    due now.
    """

    def __init__(self, machine: SkippingMachine, worker: Worker, awaited: Collection[bytes], answers: Answers) -> None:
        self.machine = machine
        self.worker = worker
        self.awaited = awaited
        self.answers = answers
        self.loop = Loop("time skipping", self._tick)
        self._sleepers: dict[asyncio.Future[None], int] = {}
        self._pause = LOOK_SECONDS
        self._stuck_since: float | None = None
        self._deadlines: set[int] = set()

    async def sleep(self, duration: int) -> None:
        """Let so many microseconds pass; whatever is due by then has been done when this returns."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers[woken] = self.machine.now() + duration
        try:
            await woken
        finally:
            self._sleepers.pop(woken, None)

    async def _tick(self) -> float:
        if not (self.awaited or self._sleepers):
            self._stuck_since = None
            return LOOK_SECONDS
        if not self._at_rest() or (due := await self._due()) is None:
            self._moves()
        elif due:
            self._moves()
            self._skip(min(due))
        else:
            self._stands_still()
        return self._pause

    # -- whether anything runs -------------------------------------------------------------------------------------

    def _at_rest(self) -> bool:
        scheduler = self.worker.scheduler
        waits = all(only_waits(one) and one not in scheduler.ready for one in scheduler.instances.values())
        told = not scheduler.agent.pacing.circuits.busy
        return scheduler.committer.idle and not scheduler.starting and told and waits

    async def _due(self) -> list[int] | None:
        """The times at which something is due, all of them later than now; None while anything runs.

        The store is asked first. All else is looked at without an await, so that nothing changes before the clock is
        put forward.
        """
        looked, commits = self.machine.now(), self.worker.telemetry.counters["commits"]
        next_due = await self.worker.claimer.look()
        rows = await self._unfinished()
        for id, call in [(id, call) for id, calls in self.answers.open.items() for call in calls]:
            if await self.answers.find(id, call) is not None:
                return None  # the caller gets it now, at the time at which it was given
        now = self.machine.now()
        if commits != self.worker.telemetry.counters["commits"]:
            return None
        if not self._at_rest() or any(self._runs(row, looked, now) for row in rows) or self._woken(now):
            return None
        if self._answered(rows):
            return None
        here = [*self._due_here()]
        if min(here, default=now + 1) <= now:
            self._skip(now)  # a retry waits for a timer of the event loop, which does not see skipped time
            return None
        self._deadlines = {row.deadline for row in rows if row.deadline is not None}
        return [at for at in (next_due or 0, *self._deadlines, *self._sleepers.values(), *here) if at > now]

    def _answered(self, rows: Iterable[Process]) -> bool:
        """Whether the test has, or gets now, what it waited for: it must find the time at which that was given."""
        if not (self.awaited or self._sleepers):
            return True
        return not {row.id for row in rows if row.status is not Status.BROKEN}.issuperset(self.awaited)

    async def _unfinished(self) -> list[Process]:
        """All rows of processes and tasks that have not ended."""
        rows: list[Process] = []
        while True:
            before = rows[-1].id if rows else None
            search = Search(statuses=UNFINISHED, tasks=True, before_id=before, limit=limits.LIST_ROWS)
            page = await self.worker.store.search(search)
            rows += page
            if len(page) < limits.LIST_ROWS:
                return rows

    def _runs(self, row: Process, looked: int, now: int) -> bool:
        """Whether a row will move: its deadline is over, it became due since we looked, or memory differs from it."""
        if row.deadline is not None and row.deadline <= now:
            return True  # a sweep ends it
        held = self.worker.scheduler.instances.get(row.id)
        if held is not None:
            return row.inbox > held.inbox.heard or row.version != held.process.version
        due = not row.reminder and row.due_at is not None and looked <= row.due_at <= now
        return due or row.owner is not None

    def _due_here(self) -> Iterator[int]:
        """The alarms and retries of the processes that wait in memory."""
        yield from (due for due, _ in self.worker.scheduler.alarms.values())
        for one in self.worker.scheduler.instances.values():
            yield from (waiting.at for waiting in one.steps.retries.values())

    # -- what is done about it -------------------------------------------------------------------------------------

    def _skip(self, at: int) -> None:
        """Put the clock forward to that time, for all that depend on it: the store's time, alarms, claims, sweeps."""
        worker = self.worker
        self.machine.put_forward(at)
        worker.time.heard(self.machine.now(), self.machine.monotonic())
        for one in list(worker.scheduler.instances.values()):
            worker.scheduler.alarms.anew(one)
            worker.scheduler.agent.retry_now(one)
        worker.claimer.wake()
        if at in self._deadlines:
            for sweep in worker.supervisor.loops:
                sweep.wake()

    def _woken(self, now: int) -> bool:
        """Wake the sleepers whose time has come; whether there were any."""
        woken = [sleeper for sleeper, until in self._sleepers.items() if until <= now]
        for sleeper in woken:
            del self._sleepers[sleeper]
            if not sleeper.done():
                sleeper.set_result(None)
        return bool(woken)

    def _moves(self) -> None:
        self._pause = LOOK_SECONDS
        self._stuck_since = None

    def _stands_still(self) -> None:
        """Nothing runs and nothing is due: say once what the test waits for, since only the test can go on."""
        self._pause = min(2 * self._pause, LONGEST_LOOK_SECONDS)
        now = self.machine.monotonic()
        if self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since >= STUCK_SECONDS:
            self._stuck_since = float("inf")
            log.warning(
                "the test waits for process %s, nothing runs, and nothing is due: send what it waits for "
                "(`await handle.status()` says what), or give result() a timeout",
                ", ".join(map(id_text, self.awaited)),
            )


def only_waits(held: Instance) -> bool:
    """Whether a held process waits for its alarm, a message or children: nothing of it runs or is to be written."""
    steps, inbox = held.steps, held.inbox
    written = held.commit is None and not (held.events or steps.asked or steps.releasing)
    heard = not (inbox.unheard or inbox.fetching or held.inputs)
    return written and heard and not steps.in_flight and not (held.outbox is not None and held.outbox.pending)
