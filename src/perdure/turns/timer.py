"""A timer: something to be called at a later instant of the store's clock; its firing is an event.

Once it has fired it is a scheduled call: something to be called in this turn.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from heapq import heapify, heappop, heappush
from typing import Any

_SPARE = 64


class ScheduledCall(list[Any]):
    """Something to be called in this turn: callback, arguments, context. Like :class:`asyncio.Handle`."""

    __slots__ = ()

    def cancel(self) -> None:
        """Prevent the call."""
        self[:] = [_nothing, (), Context()]

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self[0] is _nothing


def _nothing() -> None:
    return None


class Timer:
    """One timer, with the face of :class:`asyncio.TimerHandle`; ``due`` is microseconds since 1970."""

    __slots__ = ("args", "call", "callback", "context", "due", "number", "place", "timers")

    def __init__(
        self,
        timers: Timers,
        due: int,
        number: int,
        place: str,
        callback: Callable[..., Any],
        args: Any,
        context: Context,
    ) -> None:
        self.timers = timers
        self.due = due
        self.number = number
        self.place = place
        self.callback: Callable[..., Any] | None = callback
        self.args = args
        self.context = context
        self.call: ScheduledCall | None = None

    def __lt__(self, other: Timer) -> bool:
        return (self.due, self.number) < (other.due, other.number)

    def when(self) -> float:
        """The loop's time, in seconds, at which it is due."""
        return self.due / 1_000_000

    def cancelled(self) -> bool:
        """Whether it will not fire any more."""
        return self.callback is None

    def fire(self) -> ScheduledCall:
        """What is to be called now: to cancel the timer still prevents it."""
        self.call = call = ScheduledCall((self.callback, self.args, self.context))
        self.callback = None
        return call

    def cancel(self) -> None:
        """Prevent it from firing, or the call if it has fired in this turn."""
        if self.callback is not None:
            self.callback = None
            self.args = ()
            self.timers.forget(self.place)
        elif self.call is not None:
            self.call.cancel()
            self.call = None


class Timers:
    """The open timers of one process, by place, and in the order in which they fire: due time, then creation."""

    __slots__ = ("_heap", "open")

    def __init__(self) -> None:
        self.open: dict[str, Timer] = {}
        self._heap: list[Timer] = []

    def add(self, timer: Timer) -> None:
        """Open a timer."""
        self.open[timer.place] = timer
        heappush(self._heap, timer)

    def forget(self, place: str) -> None:
        """Drop a cancelled timer; the order is cleaned when most of it is dead."""
        self.open.pop(place, None)
        if len(self._heap) > 2 * len(self.open) + _SPARE:
            self._heap = list(self.open.values())
            heapify(self._heap)

    def fire(self, place: str) -> Timer | None:
        """Take the timer at ``place`` out, or None if none is open there."""
        return self.open.pop(place, None)

    def next(self) -> Timer | None:
        """The open timer that fires first."""
        heap = self._heap
        while heap:
            timer = heap[0]
            if self.open.get(timer.place) is timer:
                return timer
            heappop(heap)
        return None

    def due(self, now: int) -> list[Timer]:
        """The open timers due by ``now``, in firing order."""
        heap = self._heap
        found, look = [], [0]
        while look:
            at = look.pop()
            if at < len(heap) and heap[at].due <= now:
                timer = heap[at]
                if self.open.get(timer.place) is timer:
                    found.append(timer)
                look += (2 * at + 1, 2 * at + 2)
        return sorted(found)

    def clear(self) -> None:
        """Forget all of them."""
        self.open.clear()
        self._heap.clear()
