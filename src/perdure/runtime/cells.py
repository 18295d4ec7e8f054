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
from perdure.clock import Machine
from perdure.errors import StepCrashed
from perdure.exhaustion import THREADS
from perdure.runtime.keeper import HardCall, Keeper, NoCell
from perdure.runtime.shortage import Shortages
from perdure.runtime.wire import Answer
from perdure.telemetry import Telemetry

log = logging.getLogger("perdure")

CLOSE_SECONDS = 5.0
"""What killed cells get to be gone when a worker stops; they need milliseconds."""


class Cells:
    """At most ``size`` calls at once; the others wait in order. ``sources`` are what the cells import."""

    def __init__(
        self, sources: Sequence[str], telemetry: Telemetry, size: int, machine: Machine, shortages: Shortages
    ) -> None:
        self.sources = sources
        self.telemetry = telemetry
        self.machine = machine
        self.shortages = shortages
        self.size = size
        self._loop = asyncio.get_running_loop()
        self.post = self._loop.call_soon_threadsafe
        self._waiting: deque[HardCall] = deque()
        self._busy: dict[Keeper, HardCall] = {}
        self._idle: dict[Keeper, asyncio.TimerHandle] = {}
        self._numbers = 0
        self._leaving = 0
        self._refused: float | None = None
        self._again: asyncio.TimerHandle | None = None
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
        if self._again is not None:
            self._again.cancel()
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
            keeper = self._take()
            if keeper is None:
                return
            call = self._waiting.popleft()
            call.keeper = keeper
            call.watch = self._loop.call_later(limits.CELL_START_SECONDS, self._hangs, call)
            self._busy[keeper] = call
            keeper.calls.put(call)

    def held_up(self) -> bool:
        """Whether the system has refused cells for so long that nobody should wait for one here."""
        return self._refused is not None and self._loop.time() - self._refused >= limits.SHORTAGE_WAIT_SECONDS

    def _short(self, resource: str, error: BaseException) -> None:
        """The system has refused a cell, or its thread: try again soon."""
        self.shortages.refused(resource, error)
        if self._refused is None:
            self._refused = self._loop.time()
        if self._again is None:
            self._again = self._loop.call_later(limits.SHORTAGE_AGAIN_SECONDS, self._try_again)

    def _try_again(self) -> None:
        self._again = None
        if not self._waiting:
            self._refused = None  # whoever comes next finds out
        self._next()

    def _take(self) -> Keeper | None:
        """A keeper, or None while the system refuses it."""
        if self._idle:
            keeper, leaving = self._idle.popitem()  # the one used last, so that the others may go
            leaving.cancel()
            return keeper
        try:
            keeper = Keeper(self._numbers + 1, self)
        except (RuntimeError, MemoryError) as error:
            self._short(THREADS, error)
            return None
        self._numbers += 1
        return keeper

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
        self._refused = None
        if not call.given_up:
            call.begun()

    def heard(self, call: HardCall) -> None:
        """The step is alive, and has perhaps come further."""
        progress, call.progress = call.progress, None
        if progress is not None and not call.given_up:
            call.heard(progress)

    def ended(self, keeper: Keeper, call: HardCall, answer: Answer | StepCrashed | NoCell | None) -> None:
        """The call is answered, or its cell has died; without an answer it was not made."""
        self._unwatch(call)
        if isinstance(answer, NoCell):
            self._not_made(keeper, call, answer)
            return
        if isinstance(answer, StepCrashed) and not (call.given_up or call.hanging):
            self.telemetry.count("cells_crashed")
        del self._busy[keeper]
        self._idle[keeper] = self._loop.call_later(limits.CELL_IDLE_SECONDS, self._dismiss, keeper)
        self._next()
        if answer is not None:
            call.ended(answer)

    def _not_made(self, keeper: Keeper, call: HardCall, answer: NoCell) -> None:
        """The system refused a cell: the call is made again when there is one, and nothing has been tried."""
        del self._busy[keeper]
        self._idle[keeper] = self._loop.call_later(limits.CELL_IDLE_SECONDS, self._dismiss, keeper)
        call.keeper = None
        if not call.given_up:
            self._waiting.appendleft(call)
        self._short(answer.resource, answer.error)

    def left(self) -> None:
        """A keeper has ended, and its cell with all that was in it."""
        self._leaving -= 1
        self._empty.set()

    def _unwatch(self, call: HardCall) -> None:
        if call.watch is not None:
            call.watch.cancel()
            call.watch = None
