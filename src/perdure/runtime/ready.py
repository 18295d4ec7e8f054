"""The ready queue: processes whose next turn can run; a bounded number of turns run in one pass of the event loop.

Alarms put a process there when its next timer is due by the store's clock, never before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice

from perdure.clock import SECOND
from perdure.runtime import turn_commit
from perdure.runtime.instance import Instance
from perdure.runtime.store_time import StoreTime
from perdure.turns.current import staged

TURNS_PER_PASS = 200


class Ready:
    """First in, first out; a process waits in it once, whatever arrives for it meanwhile.

    All turns of a pass have one time: that of its beginning, which is no earlier than what came in for them.
    ``turn`` gives a process its turn, at that time.
    """

    def __init__(self, turn: Callable[[Instance, int], None], time: StoreTime) -> None:
        self.turn = turn
        self._time = time
        self._loop = asyncio.get_running_loop()
        self._queue: dict[Instance, None] = {}
        self._scheduled = False

    def put(self, instance: Instance) -> None:
        """Have the process's next turn run soon, with whatever is in its inputs by then."""
        queue = self._queue
        if instance in queue or instance.gone:
            return
        queue[instance] = None
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._pass)

    def __contains__(self, instance: Instance) -> bool:
        return instance in self._queue

    def _pass(self) -> None:
        queue = self._queue
        now = self._time.now()
        try:
            with staged():
                for instance in list(islice(queue, TURNS_PER_PASS)):
                    del queue[instance]
                    if not instance.gone:
                        self.turn(instance, now)
        finally:  # also when Ctrl-C interrupts a turn: the worker still has to stop gracefully
            self._scheduled = bool(queue)
            if queue:
                self._loop.call_soon(self._pass)


LATE_SECONDS = 0.0005
"""The monotonic clock and the event loop are finer than this; asking a little later avoids asking twice."""


class Alarms(dict[Instance, tuple[int, asyncio.TimerHandle]]):
    """One alarm per process in memory, for its earliest timer; a timer that was cancelled meanwhile never fires.

    A process that waits for nothing but children or messages gets one too: it does not stay in memory for ever.
    """

    def __init__(self, time: StoreTime, ring: Callable[[Instance], None]) -> None:
        super().__init__()
        self._time = time
        self._ring = ring
        self._loop = asyncio.get_running_loop()

    def cancel(self, instance: Instance) -> None:
        """The process was let go: its alarm does not ring."""
        self.pop(instance)[1].cancel()

    def set(self, instance: Instance) -> None:
        """Set the process's alarm to its earliest timer, if it has one; an earlier alarm stays, and looks anew."""
        now = self._time.now()
        due = _next(instance, now)
        alarm = self.get(instance)
        if due is None or (alarm is not None and now < alarm[0] <= due):
            return
        if alarm is not None:
            alarm[1].cancel()
        delay = max(0.0, (due - now) / SECOND) + LATE_SECONDS
        self[instance] = due, self._loop.call_later(delay, self._due, instance)

    def anew(self, instance: Instance) -> None:
        """Set the process's alarm again, if it has one: the store's time was put forward."""
        if instance in self:
            self.cancel(instance)
            self.set(instance)

    def _due(self, instance: Instance) -> None:
        self.pop(instance, None)
        if instance.gone:
            return
        now = self._time.now()
        due = _next(instance, now)
        stayed = 0 < turn_commit.until(instance) <= now  # long enough: it is let go, however far its timer is
        if due is not None and due > now and not stayed:
            self.set(instance)
        else:
            self._ring(instance)


def _next(instance: Instance, now: int) -> int | None:
    """When to look again if nothing comes in: at the earliest timer, or at the end of the process's stay in memory."""
    timer = instance.loop.next_timer()
    due = None if timer is None else timer[0]
    until = turn_commit.until(instance)
    if now < until:
        return until if due is None else min(due, until)
    return due
