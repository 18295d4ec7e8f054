"""The ready queue: processes whose next turn can run, a bounded number between two breaths of the event loop.

Alarms put a process there when its next timer is due by the store's clock, never before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from perdure.clock import SECOND
from perdure.runtime import turn_commit
from perdure.runtime.instance import Instance
from perdure.runtime.store_time import StoreTime
from perdure.turns.current import staged

TURNS_PER_PASS = 200


class Ready:
    """First in, first out; a process waits in it once, whatever arrives for it meanwhile.

    Turns between two breaths have one time: that of their beginning, which is no earlier than what came in for them.
    """

    def __init__(self, turn: Callable[[Instance, int], None], time: StoreTime) -> None:
        self._turn = turn
        self._time = time
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Instance] = deque()
        self._scheduled = False

    def put(self, instance: Instance) -> None:
        """Have the process's next turn run soon, with whatever is in its inputs by then."""
        if instance.queued or instance.gone:
            return
        instance.queued = True
        self._queue.append(instance)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._pass)

    def _pass(self) -> None:
        queue = self._queue
        now = self._time.now()
        try:
            with staged():
                for _ in range(min(len(queue), TURNS_PER_PASS)):
                    instance = queue.popleft()
                    instance.queued = False
                    if not instance.gone:
                        self._turn(instance, now)
        finally:  # also when somebody interrupts the worker in a turn: it still has to stop gracefully
            self._scheduled = bool(queue)
            if queue:
                self._loop.call_soon(self._pass)


LATE_SECONDS = 0.0005
"""The monotonic clock and the event loop are finer than this; asking a little later avoids asking twice."""


class Alarms:
    """One alarm per process in hand, for its earliest timer; a timer that was cancelled meanwhile never fires.

    A process that waits for nothing but children or messages gets one too: it is not kept in hand for ever.
    """

    def __init__(self, time: StoreTime, ring: Callable[[Instance], None]) -> None:
        self._time = time
        self._ring = ring
        self._loop = asyncio.get_running_loop()

    def set(self, instance: Instance) -> None:
        """Set the process's alarm to its earliest timer, if it has one."""
        due = _next(instance, self._time.now())
        if due is None or (instance.alarm is not None and instance.alarm[0] == due):
            return
        if instance.alarm is not None:
            instance.alarm[1].cancel()
        delay = max(0.0, (due - self._time.now()) / SECOND) + LATE_SECONDS
        instance.alarm = due, self._loop.call_later(delay, self._due, instance)

    def anew(self, instance: Instance) -> None:
        """Set the process's alarm again, if it has one: the store's time was put forward."""
        if instance.alarm is not None:
            instance.alarm[1].cancel()
            instance.alarm = None
            self.set(instance)

    def _due(self, instance: Instance) -> None:
        instance.alarm = None
        if instance.gone:
            return
        due = _next(instance, self._time.now())
        if due is not None and due > self._time.now():
            self.set(instance)
        else:
            self._ring(instance)


def _next(instance: Instance, now: int) -> int | None:
    """When to look again though nothing comes in: at the earliest timer, or when it lingers no longer."""
    timer = instance.loop.next_timer()
    due = None if timer is None else timer[0]
    until = turn_commit.until(instance)
    if now < until:
        return until if due is None else min(due, until)
    return due
