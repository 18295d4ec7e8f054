"""An alarm: while a process is in hand its timers fire from memory, never before their time by the store's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from perdure.clock import SECOND
from perdure.runtime import lingering
from perdure.runtime.activation import Activation
from perdure.runtime.store_time import StoreTime

LATE_SECONDS = 0.0005
"""The monotonic clock and the event loop are finer than this; asking a little later avoids asking twice."""


class Alarms:
    """One alarm per process in hand, for its earliest timer; a timer that was cancelled meanwhile never fires.

    A process that waits for nothing but children or messages gets one too: it is not kept in hand for ever.
    """

    def __init__(self, time: StoreTime, ring: Callable[[Activation], None]) -> None:
        self._time = time
        self._ring = ring
        self._loop = asyncio.get_running_loop()

    def set(self, activation: Activation) -> None:
        """Set the process's alarm to its earliest timer, if it has one."""
        due = _next(activation, self._time.now())
        if due is None or (activation.alarm is not None and activation.alarm[0] == due):
            return
        if activation.alarm is not None:
            activation.alarm[1].cancel()
        delay = max(0.0, (due - self._time.now()) / SECOND) + LATE_SECONDS
        activation.alarm = due, self._loop.call_later(delay, self._due, activation)

    def _due(self, activation: Activation) -> None:
        activation.alarm = None
        if activation.gone:
            return
        due = _next(activation, self._time.now())
        if due is not None and due > self._time.now():
            self.set(activation)
        else:
            self._ring(activation)


def _next(activation: Activation, now: int) -> int | None:
    """When to look again though nothing comes in: at the earliest timer, or when it lingers no longer."""
    timer = activation.loop.next_timer()
    due = None if timer is None else timer[0]
    until = lingering.until(activation)
    if now < until:
        return until if due is None else min(due, until)
    return due
