"""Cells: the child OS processes in which hard steps run; a bounded pool, filled as there is need.

A cell is killed with the attempt in it: at its deadline, when its process is not in hand any more, and, after a
moment for its clean-up, when the code takes the step back. The next call has a fresh one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

from perdure import limits
from perdure.errors import StepCrashed
from perdure.runtime.keeper import HardCall, Keeper
from perdure.runtime.wire import Answer
from perdure.telemetry import Telemetry

log = logging.getLogger("perdure")

CLOSE_SECONDS = 5.0
"""What killed cells get to be gone when a worker stops; they need milliseconds."""


class Cells:
    """At most ``size`` calls at once; the others wait in order. ``sources`` are what the cells import."""

    def __init__(self, sources: Sequence[str], telemetry: Telemetry, size: int) -> None:
        self.sources = sources
        self.telemetry = telemetry
        self.size = size
        self._loop = asyncio.get_running_loop()
        self.post = self._loop.call_soon_threadsafe
        self._waiting: deque[HardCall] = deque()
        self._busy: dict[Keeper, HardCall] = {}
        self._idle: dict[Keeper, asyncio.TimerHandle] = {}
        self._numbers = 0
        self._leaving = 0
        self._empty = asyncio.Event()

    def call(self, call: HardCall) -> None:
        """Make the call as soon as there is a cell for it."""
        self._waiting.append(call)
        self._next()

    def give_up(self, call: HardCall, *, gently: bool) -> None:
        """The call counts no more: it is not made, or its cell is killed; ``gently``, after a moment to clean up."""
        if call.given_up:
            return
        call.given_up = True
        if call.keeper is None or not call.ordered or call.keeper.cell is None:
            return  # it is not made any more, and its cell, which may just be starting, is kept for others
        cell = call.keeper.cell
        self.telemetry.count("cells_killed")
        if gently and call.watch is None:
            cell.stop()
            self._loop.call_later(limits.CELL_GRACE_SECONDS, cell.kill)
        else:
            cell.kill()

    async def close(self) -> None:
        """Kill what runs, and wait until nothing of it is left."""
        self._waiting.clear()
        for keeper, call in self._busy.items():
            self.give_up(call, gently=False)
            if keeper.cell is not None:
                keeper.cell.kill()  # also one that is just starting
        for keeper in [*self._busy, *self._idle]:
            self._dismiss(keeper)
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                while self._leaving:
                    self._empty.clear()
                    await self._empty.wait()
        except TimeoutError:
            log.error("%d child OS processes of hard steps do not end although they were killed", self._leaving)

    def _next(self) -> None:
        """Begin what can begin."""
        while self._waiting:
            if self._waiting[0].given_up:
                self._waiting.popleft()
                continue
            if not self._idle and len(self._busy) >= self.size:
                return
            call = self._waiting.popleft()
            keeper = self._take()
            call.keeper = keeper
            call.watch = self._loop.call_later(limits.CELL_START_SECONDS, self._hangs, call)
            self._busy[keeper] = call
            keeper.calls.put(call)

    def _take(self) -> Keeper:
        if self._idle:
            keeper, leaving = self._idle.popitem()  # the one used last, so that the others may go
            leaving.cancel()
            return keeper
        self._numbers += 1
        return Keeper(self._numbers, self)

    def _dismiss(self, keeper: Keeper) -> None:
        leaving = self._idle.pop(keeper, None)
        if leaving is not None:
            leaving.cancel()
        self._leaving += 1
        keeper.calls.put(None)

    def _hangs(self, call: HardCall) -> None:
        """A cell has not begun in its time."""
        self.telemetry.count("cells_killed")
        call.hanging = True
        if call.keeper is not None and call.keeper.cell is not None:
            call.keeper.cell.kill()

    # -- what a cell's thread tells --------------------------------------------------------------------------------

    def started(self) -> None:
        """A cell was started."""
        self.telemetry.count("cells_started")

    def begun(self, call: HardCall) -> None:
        """The code is imported: the attempt begins, and its time with it."""
        self._unwatch(call)
        if not call.given_up:
            call.begun()

    def heard(self, call: HardCall) -> None:
        """The step is alive, and has perhaps come further."""
        progress, call.progress = call.progress, None
        if progress is not None and not call.given_up:
            call.heard(progress)

    def ended(self, keeper: Keeper, call: HardCall, answer: Answer | StepCrashed | None) -> None:
        """The call is answered, or its cell has died; without an answer it was not made."""
        self._unwatch(call)
        if isinstance(answer, StepCrashed) and not (call.given_up or call.hanging):
            self.telemetry.count("cells_crashed")
        del self._busy[keeper]
        self._idle[keeper] = self._loop.call_later(limits.CELL_IDLE_SECONDS, self._dismiss, keeper)
        self._next()
        if answer is not None:
            call.ended(answer)

    def left(self) -> None:
        """A keeper has ended, and its cell with all that was in it."""
        self._leaving -= 1
        self._empty.set()

    def _unwatch(self, call: HardCall) -> None:
        if call.watch is not None:
            call.watch.cancel()
            call.watch = None
