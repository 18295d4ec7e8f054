"""A loop of the background: whatever its ticks raise, it goes on until it is stopped, and then it ends."""

from __future__ import annotations

import asyncio

from perdure.errors import StoreUnavailable
from perdure.loop import Loop


async def test_a_tick_that_answers_its_cancellation_with_an_error_ends_the_loop_all_the_same() -> None:
    """A driver whose connection breaks while a call is cancelled may tell of the connection alone."""
    ticking = asyncio.Event()

    async def tick() -> float:
        if ticking.is_set():
            return 60.0
        ticking.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise StoreUnavailable("the connection was closed") from None
        return 0.0

    loop = Loop("a test", tick, after_error=0.0)
    loop.start()
    await ticking.wait()
    async with asyncio.timeout(5):
        await loop.stop()
