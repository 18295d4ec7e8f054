"""Room: those that would begin in a full worker wait a moment for places, if these become free quickly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from perdure import limits


class Room:
    """Places of a worker. ``wanted`` says for how many callers somebody must tell what becomes free."""

    def __init__(self) -> None:
        self.wanted = 0
        self._found = asyncio.Event()

    async def found(self, at_work: Callable[[], bool]) -> bool:
        """Wait for some places: a moment, and as long as the worker is ``at_work``; false if that was not enough."""
        self.wanted += 1
        self._found.clear()
        waited = 0.0
        try:
            while waited < limits.START_WAIT_BUSY_SECONDS:
                waited += limits.START_WAIT_SECONDS
                try:
                    await asyncio.wait_for(self._found.wait(), limits.START_WAIT_SECONDS)
                except TimeoutError:
                    if not at_work():
                        break
                else:
                    return True
        finally:
            self.wanted -= 1
        return False

    def left(self, places: int) -> None:
        """So many places are free now."""
        if places >= limits.START_WAIT_PROCESSES:
            self._found.set()
