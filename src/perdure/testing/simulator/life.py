"""A life: one simulated OS process from its start to its end, with what waits to run in it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any

LIFE: ContextVar[Life] = ContextVar("perdure simulated life")
"""Whose code is running: everything that is scheduled belongs to the life in whose context it is."""


class Handle:
    """Something to be called in a life, now or later. Like :class:`asyncio.TimerHandle`."""

    __slots__ = ("args", "callback", "context", "gone", "life", "number", "until")

    def __init__(
        self, number: int, callback: Callable[..., Any], args: tuple[Any, ...], context: Context, life: Life
    ) -> None:
        self.number = number
        self.callback = callback
        self.args = args
        self.context = context
        self.life = life
        self.gone = False
        self.until = 0.0

    def cancel(self) -> None:
        """Prevent the call."""
        self.gone = True

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.gone

    def when(self) -> float:
        """The time at which it is to be called, in seconds of its life's clock."""
        return self.until


class Life:
    """A simulated OS process: ``ready`` is what can run now, in order.

    When it is ``dead`` nothing of it runs any more, no clean-up either; it has ``stopped`` if it came to that itself.
    While it is ``paused`` (SIGSTOP, or code that blocks) all waits; once ``hung`` it never goes on. Its monotonic clock
    runs at ``rate`` and began at ``start``.
    ``blows`` counts what has struck it, ``struck_at`` is when the last of that was over, or a call of it had failed.
    """

    __slots__ = (
        "blows", "dead", "hung", "name", "number", "paused", "rate", "ready", "refused", "signals", "start",
        "stopped", "struck_at",
    )  # fmt: skip

    def __init__(self, name: str, number: int = 0, rate: float = 1.0, start: float = 0.0) -> None:
        self.name = name
        self.number = number
        self.rate = rate
        self.start = start
        self.dead = False
        self.stopped = False
        self.paused = False
        self.hung = False
        self.blows = 0
        self.struck_at = 0.0
        self.refused: dict[str, float] = {}
        self.ready: deque[Handle] = deque()
        self.signals: dict[int, Callable[[], object]] = {}

    def refuses(self, what: str, now: float) -> bool:
        """Whether the system refuses it threads, or descriptors, now; ``refused`` says until when."""
        return self.refused.get(what, 0.0) > now

    def struck(self, until: float) -> None:
        """Something strikes it now, and is over at that time."""
        self.struck_at = max(self.struck_at, until)
