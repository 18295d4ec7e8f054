"""A step that blocks its worker's event loop for ever, among healthy processes: for how long each stands still."""

from __future__ import annotations

import asyncio
from pathlib import Path

from perdure.engine import Engine
from perdure.kernel.process import Status
from perdure.runtime.watchdog import EXIT_HUNG
from perdure.store.base import Search
from tests.load.loud import parked
from tests.load.pool import Pool, pool_on
from tests.load.program import hanging, marks, ticking
from tests.load.verdict import Verdict

WORKERS = 3
HEALTHY = 40
SETTLE_SECONDS = 3.0
LOOK_SECONDS = 0.25
MOST_STILL_SECONDS = 20.0
MOST_WORKERS = 2
PACE = {"exit_when_hung": True}


class Progress:
    """For how long each of the healthy ones has stood still; ``longest`` is the most of them all."""

    def __init__(self, client: Engine, ids: list[bytes]) -> None:
        self._client = client
        self._ids = ids
        self.longest = 0.0

    async def look(self) -> None:
        """Look again and again, until cancelled."""
        loop = asyncio.get_running_loop()
        moved: dict[bytes, tuple[int, float]] = {}
        while True:
            for row in await self._client.store.search(Search(ids=tuple(self._ids), limit=len(self._ids))):
                events, since = moved.get(row.id, (-1, loop.time()))
                if row.events != events:
                    moved[row.id] = row.events, loop.time()
                elif row.status is Status.RUNNING:
                    self.longest = max(self.longest, loop.time() - since)
            await asyncio.sleep(LOOK_SECONDS)


async def hung(url: str, folder: Path) -> Verdict:
    """Under the defaults: two workers are lost to it, one after the other, then it is parked; nobody waits for long."""
    verdict = Verdict(f"a hanging step among {HEALTHY} healthy processes")
    async with pool_on(url, folder) as pool, Engine(url, migrate=True) as client:
        await pool.ready(WORKERS, options=PACE)
        handles = [await client.start(ticking) for _ in range(HEALTHY)]
        progress = Progress(client, [handle.id_bytes for handle in handles])
        looking = asyncio.create_task(progress.look())
        await asyncio.sleep(SETTLE_SECONDS)
        begun = asyncio.get_running_loop().time()
        row = await client.row((await parked(client, hanging)).id)
        verdict.note(f"parked after {asyncio.get_running_loop().time() - begun:.0f} s: {_why(row.error)}")
        looking.cancel()
        verdict.bound("runs of it", marks("hangs"), MOST_WORKERS + 1)
        verdict.bound("workers that ended of it", _ended(pool), MOST_WORKERS)
        verdict.bound("longest standstill of a healthy one in seconds", progress.longest, MOST_STILL_SECONDS)
        rows = await client.store.search(Search(ids=tuple(progress._ids), limit=HEALTHY))
        verdict.bound("healthy ones against which a death is counted", sum(bool(one.deaths) for one in rows), 0)
    return verdict


def _ended(pool: Pool) -> int:
    return sum(member.code == EXIT_HUNG for member in pool.members)


def _why(error: bytes | None) -> str:
    return (error or b"").decode()[:100]
