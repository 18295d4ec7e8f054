"""Threads: where sync steps run. One that outlives its time is left behind, and another takes its place.

The threads are daemons: a step that hangs keeps no worker from ending.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

from perdure import limits

log = logging.getLogger("perdure")


class Call:
    """One call for a thread; ``begun`` is told on the event loop when it begins, ``ended`` of its result or error."""

    __slots__ = ("begun", "ended", "function", "given_up", "under_way")

    def __init__(
        self,
        function: Callable[[], Any],
        begun: Callable[[], None],
        ended: Callable[[Any, BaseException | None], None],
    ) -> None:
        self.function = function
        self.begun = begun
        self.ended = ended
        self.under_way = False
        self.given_up = False


class Threads:
    """At most ``limits.STEP_THREADS`` calls at once, not counting those left behind; the others wait in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Call] = deque()
        self._begun: SimpleQueue[Call | None] = SimpleQueue()
        self._busy = 0
        self._left_behind = 0
        self._threads = 0

    def call(self, call: Call) -> None:
        """Make the call as soon as there is a thread for it."""
        self._waiting.append(call)
        self._next()

    def give_up(self, call: Call) -> None:
        """The call counts no more: it is not made, or its thread is left behind."""
        if call.given_up:
            return
        call.given_up = True
        if call.under_way:
            self._busy -= 1
            self._left_behind += 1
            if self._left_behind == limits.LEFT_BEHIND_THREADS:
                log.error(
                    "%d sync steps have outlived their time and still hold their threads; no other sync step begins "
                    "before one of them ends. Give their calls time limits of their own, and restart this worker",
                    self._left_behind,
                )
        self._next()

    def close(self) -> None:
        """Let the threads end, each after the call that it is in."""
        self._waiting.clear()
        for _ in range(self._threads):
            self._begun.put(None)

    def _next(self) -> None:
        """Begin what can begin."""
        while self._waiting and self._busy < limits.STEP_THREADS:
            if self._left_behind >= limits.LEFT_BEHIND_THREADS:
                return
            call = self._waiting.popleft()
            if call.given_up:
                continue
            call.under_way = True
            self._busy += 1
            if self._busy + self._left_behind > self._threads:
                self._threads += 1
                Thread(target=self._live, name=f"perdure step {self._threads}", daemon=True).start()
            call.begun()
            self._begun.put(call)

    def _live(self) -> None:
        while (call := self._begun.get()) is not None:
            result: Any = None
            failure: BaseException | None = None
            try:
                result = call.function()
            except BaseException as error:  # whatever a step raises is its answer, never the end of a thread
                failure = error
            try:
                self._loop.call_soon_threadsafe(self._ended, call, result, failure)
            except RuntimeError:
                return  # the event loop is closed: nobody is left to hear it
            del call, result, failure

    def _ended(self, call: Call, result: Any, failure: BaseException | None) -> None:
        if call.given_up:
            self._left_behind -= 1
        else:
            self._busy -= 1
        self._next()
        call.ended(result, failure)
