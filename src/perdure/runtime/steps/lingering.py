"""Lingering attempts: those that were told to stop and have not ended; no undo begins before that (rule 23)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from perdure import limits

if TYPE_CHECKING:
    from perdure.runtime.steps.attempt_run import AttemptRun


class Lingering:
    """Attempts that were told to stop and have not ended: no undo of their process begins before that (rule 23).

    The undo does not wait for ever: for a thread that hangs until its deadline, or a moment if that has passed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ending: dict[bytes, dict[AttemptRun, asyncio.TimerHandle]] = {}
        self._held: dict[bytes, list[Callable[[], None]]] = {}

    def add(self, attempt_run: AttemptRun) -> None:
        """An attempt was told to stop while it was under way."""
        until = max(attempt_run.deadline, self._loop.time() + limits.UNDO_GRACE_SECONDS)
        ending = self._ending.setdefault(attempt_run.instance.process.id, {})
        ending[attempt_run] = self._loop.call_at(until, self.ended, attempt_run)

    def ended(self, attempt_run: AttemptRun) -> None:
        """An attempt that was told to stop has ended, or has had its time."""
        id = attempt_run.instance.process.id
        ending = self._ending.get(id)
        if ending is None or attempt_run not in ending:
            return
        ending.pop(attempt_run).cancel()
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
