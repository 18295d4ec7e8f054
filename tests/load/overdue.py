"""Very many due at one instant: they are taken up at once, each once, while new ones come in as before."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from perdure.clock import SECOND
from perdure.engine import Engine
from perdure.kernel.process import Process, Status
from perdure.store.base import Search
from tests.load.others import others
from tests.load.pool import LIMIT, Pool, pool_on
from tests.load.program import late
from tests.load.verdict import Verdict, part

WORKERS = 2
FIRST_SECONDS = 1.0
TIMES_BASELINE = 5.0
TIMES_BARE = 3.0
"""Of what a bare commit takes meanwhile: beside so many commits every commit waits for the disk."""
BARE_EVERY = 0.04
QUIET_SECONDS = 10.0
CALLS_EACH = 0.5
"""A process that is overdue costs two rows of claims and commits, never two calls: they come in batches."""


async def rows(engine: Engine) -> list[Process]:
    """All that wait for the moment, or have waited."""
    found: list[Process] = []
    while portion := await engine.store.search(
        Search(kind="late", limit=1000, before_id=found[-1].id if found else None)
    ):
        found += portion
    return found


async def waiting(engine: Engine, pool: Pool, processes: int, moment: float) -> None:
    """Start them and wait until all are in nobody's hands; if the moment comes before that, it was too soon."""
    for begin in range(0, processes, 5_000):
        await engine.start_many(late, [(moment,)] * min(5_000, processes - begin))
    async with asyncio.timeout(LIMIT):
        while (await pool.metrics())["claims"] < processes:
            await asyncio.sleep(0.5)
        while any(row.owner for row in await rows(engine)):
            await asyncio.sleep(0.5)
    assert await engine.store.now() < moment * SECOND, "the moment came while they were still being started"


@asynccontextmanager
async def bare_commits(url: str) -> AsyncIterator[list[float]]:
    """The seconds that a commit of one row takes, again and again, on a connection of its own and without Perdure.

    PostgreSQL only: on SQLite a second writer waits for the write lock, and does not measure the disk.
    """
    taken: list[float] = []
    if not url.startswith("postgresql:"):
        yield taken
        return
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE bare_commits (n int)")
    running = asyncio.create_task(_commit_again_and_again(connection, taken))
    try:
        yield taken
    finally:
        running.cancel()
        await asyncio.wait([running])
        await connection.close()


async def _commit_again_and_again(connection: asyncpg.Connection[asyncpg.Record], taken: list[float]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        begun = loop.time()
        await connection.execute("INSERT INTO bare_commits VALUES (1)")
        taken.append(loop.time() - begun)
        await asyncio.sleep(BARE_EVERY)


async def overdue(url: str, folder: Path, processes: int, lead: float) -> Verdict:
    """Wait for the moment, ``lead`` seconds away, with workers that sleep; then look at what they do."""
    verdict = Verdict(f"{processes:,} due at one instant")
    async with pool_on(url, folder) as pool, Engine(url, migrate=True) as client:
        await pool.ready(WORKERS)
        moment = await client.store.now() / SECOND + lead
        await waiting(client, pool, processes, moment)
        async with others(client) as before:
            await asyncio.sleep(max(5.0, moment - await client.store.now() / SECOND - 3.0))
        claimed = (await pool.metrics())["claims"]
        async with others(client) as meanwhile, bare_commits(url) as bare:
            await _all_ended(client, pool, processes)
        ended = await rows(client)
        firsts = [(row.changed_at - moment * SECOND) / SECOND for row in ended]
        await asyncio.sleep(2.0)
        calls = await pool.asked()
        await asyncio.sleep(QUIET_SECONDS)
        quiet = (await pool.asked() - calls) / QUIET_SECONDS
        again = (await pool.metrics())["claims"] - claimed - processes
    assert {row.status for row in ended} == {Status.COMPLETED}
    assert len(ended) == processes
    verdict.note(f"all ended {max(firsts):.1f} s after it, {again:,} claimed beside them")
    verdict.bound("the first ended after seconds", min(firsts), FIRST_SECONDS)
    _starts_meanwhile(verdict, before.intake, meanwhile.intake, bare)
    verdict.bound("calls to the store a second afterwards", quiet, 20.0)
    return verdict


def _starts_meanwhile(verdict: Verdict, before: list[float], meanwhile: list[float], bare: list[float]) -> None:
    """Judge the starts by what a bare commit takes beside the same load, or else by what they took before."""
    base, loud = part(before), part(meanwhile)
    figures = f"p99 of {len(meanwhile):,} starts meanwhile {loud * 1e3:.0f} ms, before {base * 1e3:.0f} ms"
    if not bare:
        verdict.bound(f"{figures}: times", loud / base, TIMES_BASELINE)
        return
    limit = part(bare)
    verdict.note(f"{figures}: {loud / base:.1f} times")
    verdict.bound(
        f"p99 of {len(bare):,} bare commits meanwhile {limit * 1e3:.0f} ms: starts take times", loud / limit, TIMES_BARE
    )


async def _all_ended(client: Engine, pool: Pool, processes: int) -> None:
    async with asyncio.timeout(LIMIT):
        while (await client.count()).get("late", {}).get("completed", 0) < processes:
            await asyncio.sleep(0.25)


async def counted(url: str, folder: Path, processes: int) -> Counter[str]:
    """The short form, without a clock: they become due while nobody works, then one worker comes."""
    async with pool_on(url, folder) as pool, Engine(url, migrate=True) as client:
        await client.start_many(late, [(0.0,)] * processes)  # a moment long past, and nobody has looked yet
        [worker] = await pool.ready()
        new = await client.start_many(late, [(0.0,)] * 10)
        for handle in new:
            await handle.result(LIMIT)
        async with asyncio.timeout(LIMIT):
            # By its own count, which comes a moment after the database's.
            while (found := await worker.figures())["metrics"].get("completed", 0) < processes + 10:
                await asyncio.sleep(0.05)
    calls = found["asked"]
    assert found["metrics"]["claims"] == found["metrics"]["completed"] == processes + 10, "each was claimed once"
    return Counter(calls)
