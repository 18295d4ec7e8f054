"""Suspects: thousands that twice lost their worker go on soon, and one that kills it is found among them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from perdure import limits
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.kernel.process import Status
from tests.load.pool import LIMIT, Pool, pool_on
from tests.load.program import begun_after, biting, innocent, marks
from tests.load.verdict import Verdict

GO_ON_SECONDS = 10.0
PARKED_SECONDS = 60.0
STEP_SECONDS = 20.0
BITES_AFTER_SECONDS = 0.5
WORKERS = 3
SETTLED_SECONDS = limits.PROBE_GRACE_SECONDS + 1.0
"""Workers that have just connected take nobody for dead yet."""


async def _until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not what():
            await asyncio.sleep(0.05)


async def _all_ended(client: Engine, handles: list[Handle[int]]) -> None:
    """Each has come to its end, and its deaths are forgotten."""
    assert [await handle.result(LIMIT) for handle in handles] == list(range(len(handles)))
    assert {(await client.row(handle.id)).deaths for handle in handles} == {0}


async def twice_orphaned(url: str, folder: Path, processes: int, seconds: float) -> dict[int, float]:
    """Their worker is killed, and the next one too: after how long each goes on. In the end all have ended."""
    async with pool_on(url, folder) as pool, Engine(url, migrate=True) as client:
        moment = 0.0
        [first] = await pool.ready()
        handles = await client.start_many(innocent, [(n, seconds) for n in range(processes)])
        await _until(lambda: len(begun_after(moment)) == processes)
        [second] = await pool.ready()
        moment = time.monotonic()
        await first.kill()
        await _until(lambda: len(begun_after(moment)) == processes)
        await pool.ready(WORKERS - 1)
        await asyncio.sleep(SETTLED_SECONDS)
        moment = time.monotonic()
        await second.kill()
        await _until(lambda: len(begun_after(moment)) == processes)
        waited = {n: at - moment for n, at in begun_after(moment).items()}
        await _all_ended(client, handles)
    return waited


async def bitten(url: str, folder: Path, processes: int, seconds: float) -> tuple[float, int]:
    """One among them kills its worker: after how long it is parked, and after how many deaths. All others end."""
    async with pool_on(url, folder) as pool, Engine(url, migrate=True) as client:
        await pool.ready(WORKERS)
        replacing = asyncio.create_task(_replaced(pool))
        handles = await client.start_many(innocent, [(n, seconds) for n in range(processes)])
        await _until(lambda: len(begun_after(0.0)) == processes)
        begun = time.monotonic()
        handle = await client.start(biting, BITES_AFTER_SECONDS)
        async with asyncio.timeout(LIMIT):
            while (await client.row(handle.id)).status is Status.RUNNING:
                await asyncio.sleep(0.1)
        took = time.monotonic() - begun
        row = await client.row(handle.id)
        assert (row.status, row.alone_deaths) == (Status.BROKEN, 3)
        await _all_ended(client, handles)
        replacing.cancel()
        return took, marks("deaths")


async def _replaced(pool: Pool) -> None:
    """Start a worker for each that died."""
    while True:
        for member in [member for member in pool.members if not member.alive]:
            pool.members.remove(member)
            await pool.ready()
        await asyncio.sleep(0.1)


async def suspects(url: str, folder: Path, processes: int) -> Verdict:
    """The long form: the innocent by themselves, then one that is guilty among as many."""
    verdict = Verdict(f"{processes:,} suspects")
    waited = sorted((await twice_orphaned(url, folder, processes, STEP_SECONDS)).values())
    verdict.note(f"after the second death half of them went on within {waited[len(waited) // 2]:.1f} s")
    verdict.bound("the last after", waited[-1], GO_ON_SECONDS)
    (folder / "begun").unlink()
    took, deaths = await bitten(url, folder, processes, STEP_SECONDS)
    verdict.note(f"one that kills its worker among them: {deaths} deaths, all others ended")
    verdict.bound("parked after", took, PARKED_SECONDS)
    return verdict
