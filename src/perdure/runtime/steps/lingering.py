"""Lingering attempts: those that no undo overtakes, since they were told to stop or still run (rule 23)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from perdure import limits
from perdure.turns.ask import undoing
from perdure.turns.saga import UndoAsk, unheard

if TYPE_CHECKING:
    from perdure.runtime.instance import Instance
    from perdure.runtime.steps.attempt_run import AttemptRun


class Lingering:
    """Attempts that were told to stop and have not ended: no undo of their process begins before that (rule 23).

    Once the process as a whole is undone, that holds for all attempts that run: those of steps without an undo too.
    The undo does not wait for ever: for a thread that hangs until its deadline, or a moment if that has passed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ending: dict[bytes, dict[AttemptRun, asyncio.TimerHandle]] = {}
        self._held: dict[bytes, list[Callable[[], None]]] = {}
        self._running: set[AttemptRun] = set()

    def add(self, attempt_run: AttemptRun) -> None:
        """An attempt was told to stop while it was under way."""
        self._running.discard(attempt_run)
        until = max(attempt_run.deadline, self._loop.time() + limits.UNDO_GRACE_SECONDS)
        self._await(attempt_run, until)

    def _await(self, attempt_run: AttemptRun, until: float) -> None:
        ending = self._ending.setdefault(attempt_run.instance.process.id, {})
        if (before := ending.get(attempt_run)) is not None:
            before.cancel()
        ending[attempt_run] = self._loop.call_at(until, self.ended, attempt_run)

    def before_undo(self, instance: Instance) -> None:
        """An undo would begin. If its process is undone as a whole, it waits for the attempts that run there.

        A step without an undo that has not begun, since it waits for a thread or its next attempt, is taken back.
        """
        loop, steps = instance.loop, instance.steps
        if not undoing(loop):
            return
        idle = []
        for ask in loop.open.values():
            attempt_run = cast("AttemptRun | None", steps.in_flight.get(ask.slot))
            if attempt_run is None or not attempt_run.started:
                if unheard(loop, ask) and (attempt_run is not None or ask.slot in steps.retries):
                    idle.append(ask)
            elif not (type(ask) is UndoAsk or attempt_run in self._running):
                self._running.add(attempt_run)
                self._await(attempt_run, attempt_run.deadline)
                ask.add_done_callback(partial(self._answered, attempt_run), context=Context())
        if idle:
            steps.take_back(idle, loop.open)

    def _answered(self, attempt_run: AttemptRun, ask: asyncio.Future[Any]) -> None:
        self._loop.call_soon(self.ended_by_itself, attempt_run)  # it is a turn that hears of the answer

    def ended_by_itself(self, attempt_run: AttemptRun) -> None:
        """An attempt has failed, or its step is answered. If it was told to stop meanwhile, it may run on."""
        if attempt_run in self._running:
            self.ended(attempt_run)

    def ended(self, attempt_run: AttemptRun) -> None:
        """An attempt that was told to stop has ended, or has had its time."""
        id = attempt_run.instance.process.id
        ending = self._ending.get(id)
        if ending is None or attempt_run not in ending:
            return
        ending.pop(attempt_run).cancel()
        self._running.discard(attempt_run)
        if not ending:
            del self._ending[id]
            for begin in self._held.pop(id, ()):
                begin()

    def hold(self, process: bytes, begin: Callable[[], None]) -> bool:
        """Whether an undo must wait; it then begins when the last attempt of its process has ended."""
        if process not in self._ending:
            return False
        self._held.setdefault(process, []).append(begin)
        return True
