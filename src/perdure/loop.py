"""A loop: everything in the background does a bounded amount, then says how long to wait."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

from perdure.errors import PerdureError, StoreFull, StoreRegressed, StoreUnavailable
from perdure.exhaustion import exhausted
from perdure.logs import logger

log = logger("worker")
store_log = logger("store")


def give_way() -> None:
    """Let another thread or program that waits for a processor have this one; if none waits it costs a microsecond.

    Who works long without a pause calls it: Linux lets it go on for milliseconds after another has woken up. Windows
    knows no such call.
    """
    if sys.platform != "win32":
        os.sched_yield()


class Outage:
    """Logs once for the whole engine that the database does not answer, and once that it answers again.

    ``since`` is when it began, by the machine's monotonic clock; None while the database answers. A full disk and
    findings of a fail-over are logged meanwhile too, each once, since a person may have to act.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self.since: float | None = None
        self._found: set[str] = set()

    def began(self, error: StoreUnavailable) -> None:
        """The database did not answer, or refused for now."""
        fresh = self.since is None
        if fresh:
            self.since = self._monotonic()
        if isinstance(error, StoreFull | StoreRegressed):
            if str(error) not in self._found:
                self._found.add(str(error))
                store_log.warning("%s", error)
        elif fresh:
            text = "the database does not answer; writes wait, and go on by themselves when it does: %s"
            store_log.warning(text, error)

    def ended(self) -> None:
        """The database has answered."""
        if self.since is not None:
            store_log.warning("the database answers again, after %.1f s", self._monotonic() - self.since)
            self.since = None
            self._found.clear()


class Loop:
    """Calls ``tick`` again and again; ``tick`` returns how many seconds to wait, unless woken earlier.

    The first call comes after ``first_after`` seconds. An error of a tick is logged and the loop goes on after
    ``after_error`` seconds: nothing in the background may end silently. ``outage`` logs that the database does not
    answer, once for all loops of an engine.
    """

    def __init__(
        self,
        name: str,
        tick: Callable[[], Awaitable[float]],
        outage: Outage | None = None,
        *,
        first_after: float = 0.0,
        after_error: float = 1.0,
    ) -> None:
        self.name = name
        self._tick = tick
        self._outage = outage
        self._first_after = first_after
        self.after_error = after_error
        self._woken: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin ticking on the running event loop."""
        self._woken = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"perdure {self.name}")

    def wake(self) -> None:
        """Tick again now, or once more if a tick is under way."""
        if self._woken is not None:
            self._woken.set()

    async def stop(self, seconds: float | None = None, hurry: asyncio.Event | None = None) -> None:
        """Stop at the next wait; a tick under way is finished first unless it waits for the store.

        A tick that still finishes something after so many ``seconds``, or at a ``hurry``, is cancelled once more.
        """
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        if hurry is not None:
            hurried = asyncio.create_task(hurry.wait())
            await asyncio.wait([task, hurried], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            hurried.cancel()
            task.cancel()
        await asyncio.wait([task])

    async def _run(self) -> None:
        if self._first_after:
            await self._wait(self._first_after)
        while self._task is not None:  # a driver may have told an error of its own instead of the cancellation
            wait = await self._ticked()
            if wait > 0:
                await self._wait(wait)
            else:
                await asyncio.sleep(0)

    async def _ticked(self) -> float:
        """Tick once; the answer is how many seconds to wait, also after an error."""
        assert self._woken is not None
        self._woken.clear()
        try:
            return await self._tick()
        except PerdureError as error:
            if self._outage is not None and isinstance(error, StoreUnavailable):
                self._outage.began(error)
            else:
                log.warning("%s: %s", self.name, error)
        except Exception as error:
            if (what := exhausted(error, spawning=True)) is not None:
                log.warning("%s: the system refuses this worker %s (%s); tried again", self.name, what, error)
            else:
                log.exception("%s: this must not happen; please report it", self.name)
        return self.after_error

    async def _wait(self, seconds: float) -> None:
        """Wait for so long, or until the loop is woken."""
        assert self._woken is not None
        timer = asyncio.get_running_loop().call_later(seconds, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()
