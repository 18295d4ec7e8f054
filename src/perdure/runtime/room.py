"""Room: those that would begin in a full worker wait a moment for places, if these become free quickly."""

from __future__ import annotations

import asyncio

from perdure import limits


class Room:
    """Places of a worker. ``wanted`` says for how many callers somebody must tell what becomes free."""

    def __init__(self) -> None:
        self.wanted = 0
        self._found = asyncio.Event()

    async def found(self) -> bool:
        """Wait a moment for some places; false if they become free too slowly to wait for them."""
        self.wanted += 1
        self._found.clear()
        try:
            await asyncio.wait_for(self._found.wait(), limits.START_WAIT_SECONDS)
        except TimeoutError:
            return False
        finally:
            self.wanted -= 1
        return True

    def left(self, places: int) -> None:
        """So many places are free now."""
        if places >= limits.START_WAIT_PROCESSES:
            self._found.set()
