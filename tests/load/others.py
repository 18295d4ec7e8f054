"""The others: small processes started at a steady pace while something loud goes on, and how long each took."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure.engine import Engine
from tests.load.pool import LIMIT
from tests.load.program import quick


class Others:
    """``intake`` are the seconds that each start took, ``whole`` those from the start to the result."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self.intake: list[float] = []
        self.whole: list[float] = []
        self.started = 0

    async def _one(self, n: int) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        handle = await self._engine.start(quick, n)
        self.intake.append(loop.time() - begun)
        assert await handle.result(LIMIT) == n + 1
        self.whole.append(loop.time() - begun)

    async def run(self, every: float) -> None:
        """Start one in so many seconds, whether the ones before have ended or not."""
        while not self._stopping:
            self.started += 1
            task = asyncio.create_task(self._one(self.started))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(every)

    async def end(self) -> None:
        """Start no more, and wait for those under way."""
        self._stopping = True
        await asyncio.gather(*self._tasks)


@asynccontextmanager
async def others(engine: Engine, every: float = 0.04) -> AsyncIterator[Others]:
    """Others at a steady pace; at the end all of them have ended."""
    made = Others(engine)
    running = asyncio.create_task(made.run(every))
    try:
        yield made
    finally:
        await made.end()
        await running
