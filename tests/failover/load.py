"""The load under which servers fail: worker OS processes at work, and a client that remembers what it was told."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import ProcessCancelled, ProcessNotFound, StoreUnavailable
from perdure.kernel.names import id_text
from perdure.kernel.process import Status
from perdure.store.base import Search
from tests.kill.harness import LIMIT, Harness, laws_hold, said
from tests.kill.workload import five_pauses

SomeLoad = TypeVar("SomeLoad", bound="Load")
STEPS = 5
PRODUCTIVE_SECONDS = 3.0
"""What a quiet machine keeps to; beside other tests nobody measures time."""


class Load:
    """Starts processes, waits for their results, and keeps what was acknowledged. ``at_once`` are under way."""

    def __init__(self, engine: Engine, harness: Harness) -> None:
        self.engine = engine
        self.harness = harness
        self.started: dict[int, str] = {}
        self.finished: set[int] = set()
        self.asked = 0
        self.slowest = 0.0
        self.verdict = ""
        self._stopping = False

    async def run(self, at_once: int) -> None:
        """Keep so many processes under way until :meth:`stop`."""
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(self._one_after_the_other())

    async def _one_after_the_other(self) -> None:
        while not self._stopping:
            self.asked += 1
            n = self.asked
            handle = await self.engine.start(five_pauses.options(key=f"load/{n}"), n)
            self.started[n] = handle.id
            await self._awaited(handle, n)

    async def _awaited(self, handle: Handle[int], n: int) -> None:
        assert await handle.result() == STEPS * n
        self.finished.add(n)

    def stop(self) -> None:
        """Start nothing more; what is under way goes on to its end."""
        self._stopping = True

    def written(self) -> int:
        """How many bytes of effects there are: it grows exactly while workers begin steps."""
        return self.harness.ledger.stat().st_size

    async def grown(self, effects: int) -> float:
        """Wait for so many more effects; the seconds that this took."""
        loop = asyncio.get_running_loop()
        begun, wanted = loop.time(), self.written() + 40 * effects
        async with asyncio.timeout(LIMIT):
            while self.written() < wanted:
                await asyncio.sleep(0.005)
        return loop.time() - begun

    async def productive(self, within: float) -> None:
        """The server has just begun to accept writes: within so many seconds workers begin new steps."""
        seconds = await self.grown(1)
        self.slowest = max(self.slowest, seconds)
        assert seconds <= within, "the workers took too long to be productive again"

    async def judge(self) -> str:
        """All that was acknowledged is there and finished, each effect under its key; the answer tells the counts."""
        rows = {id_text(row.id): row for row in await laws_hold(self.engine)}
        assert self.started.keys() == self.finished, "a process that was started never ended"
        assert self.started.items() >= {(n, self.started[n]) for n in self.finished}
        assert rows.keys() >= set(self.started.values()), "an acknowledged start is gone"
        assert all(rows[id].status is Status.COMPLETED for id in self.started.values())
        effects = self.harness.effects()
        keys = Counter(what for what, _ in effects)
        assert all(keys[f"pause{n}"] == STEPS for n in self.started), "each step has one key, whoever runs it"
        again = sum(times > 1 for times in effects.values())
        soon = f"; workers productive at most {self.slowest:.2f} s after the server" if self.slowest else ""
        return (
            f"{len(self.started):,} processes acknowledged and all finished, {len(effects):,} steps, "
            f"{again} begun again under their keys{soon}"
        )


class LossyLoad(Load):
    """The same where what was acknowledged may be lost, but may not be done again by itself."""

    def __init__(self, engine: Engine, harness: Harness) -> None:
        super().__init__(engine, harness)
        self.lost: set[int] = set()
        self.held: set[int] = set()

    async def _awaited(self, handle: Handle[int], n: int) -> None:
        try:
            await super()._awaited(handle, n)
        except ProcessNotFound:
            self.lost.add(n)
        except ProcessCancelled:
            self.held.add(n)

    async def look_after(self) -> None:
        """What a person does who finds processes set back: here they are ended, so that nothing may be repeated."""
        while True:
            await asyncio.sleep(0.05)
            try:
                for row in await self.engine.store.search(Search(statuses=(Status.HELD,), limit=1000)):
                    await self.engine.process(id_text(row.id)).terminate(who="ann", why="a fail-over has set it back")
            except (StoreUnavailable, ProcessNotFound):
                continue

    async def judge(self) -> str:
        """What ended or is held was done once, what is lost was told; the answer tells the counts."""
        await laws_hold(self.engine)
        assert self.started.keys() == self.finished | self.lost | self.held, "a process never ended and was not told of"
        effects = self.harness.effects()
        again = [key for key, times in effects.items() if times > 1]
        assert not again, f"done again by itself: {again[:5]}"
        return (
            f"{len(self.started):,} processes acknowledged: {len(self.finished):,} finished, {len(self.held)} set back "
            f"and held, {len(self.lost)} lost and told of; {len(effects):,} steps, none done again by itself"
        )


@asynccontextmanager
async def under_load(
    url: str, folder: Path, *, workers: int = 2, at_once: int = 30, kind: type[SomeLoad] = Load
) -> AsyncIterator[SomeLoad]:
    """Real workers and a client on this database; what is under way comes to its end, then all is judged."""
    harness = Harness(url, folder, quiet=True)  # workers tell of each failed call: see workers.log
    try:
        async with Engine(url, migrate=True) as client:
            for child in [await harness.start_worker(options={"in_flight": at_once}) for _ in range(workers)]:
                await said(child, "ready")
            load = kind(client, harness)
            running = asyncio.create_task(load.run(at_once))
            await load.grown(at_once)
            yield load
            load.stop()
            await asyncio.wait_for(running, LIMIT)
            load.verdict = await load.judge()
    finally:
        await harness.end()
