"""A herd: very many workers begin at once on a database that is empty; nothing collides, and soon all is calm."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

from perdure.engine import Engine
from perdure.kernel.process import Status
from perdure.store.base import Search
from tests.load.others import others
from tests.load.pool import LIMIT, pool_on
from tests.load.program import quick
from tests.load.verdict import Verdict

CALM_SECONDS = 5.0
STEADY_SECONDS = 15.0
TIMES_STEADY = 2.0


async def herd(url: str, folder: Path, programs: int, engines: int) -> Verdict:
    """So many programs with so many workers each open at one word; what they ask of the store, second by second."""
    verdict = Verdict(f"{programs * engines} workers start at once in {programs} OS processes, on an empty database")
    async with pool_on(url, folder) as pool:
        for _ in range(programs):
            await pool.start(wait=True, engines=engines)
        for member in pool.members:
            await member.said("here")
        begun = time.monotonic()
        for member in pool.members:
            member.tell("go")
        for member in pool.members:
            await member.said("ready")
        ready = time.monotonic()
        async with Engine(url, migrate=True) as client:
            verdict.note(await _all_there(client, programs * engines))
            async with others(client, 0.1) as small:
                await asyncio.sleep(CALM_SECONDS + STEADY_SECONDS + 2.0)
            verdict.note(f"{len(small.whole)} small processes meanwhile, each ended once")
        by_second: Counter[int] = Counter()
        for member in pool.members:
            by_second.update({int(second): n for second, n in (await member.figures())["by_second"].items()})
    first = int(ready + CALM_SECONDS) + 1
    steady = sum(by_second[first + second] for second in range(int(STEADY_SECONDS))) / STEADY_SECONDS
    worst = max(by_second[second] for second in range(int(begun), int(ready) + 1))
    verdict.note(f"all ready after {ready - begun:.1f} s, at most {worst} calls a second until then")
    verdict.note(f"steady {steady:.0f} calls a second")
    verdict.bound("calls in the fifth second after", by_second[first], steady * TIMES_STEADY)
    return verdict


async def _all_there(client: Engine, many: int) -> str:
    workers = await client.store.workers()
    assert len({worker.id for worker in workers}) == many, f"{many} began and {len(workers)} are enlisted"
    assert not any(worker.lock_free for worker in workers), "each holds a lock of its own"
    return f"{many} enlisted, each with its lock"


async def collides(url: str, folder: Path, programs: int, engines: int, processes: int) -> str:
    """The short form: whoever begins makes the tables, all enlist, and what waits is done once."""
    async with pool_on(url, folder) as pool:
        for _ in range(programs):
            await pool.start(wait=True, engines=engines)
        for member in pool.members:
            await member.said("here")
            member.tell("go")
        for member in pool.members:
            await member.said("ready")
        async with Engine(url, migrate=True) as client:
            told = await _all_there(client, programs * engines)
            handles = await client.start_many(quick, [(n,) for n in range(processes)])
            assert [await handle.result(LIMIT) for handle in handles] == [n + 1 for n in range(processes)]
            ended = await client.store.search(Search(kind="quick", statuses=(Status.COMPLETED,), limit=processes + 1))
            assert {row.events for row in ended} == {2}, "a step's result and the end, each once"
        metrics = await pool.metrics()
    assert metrics["commits_refused"] == metrics["workers_dead"] == metrics["incarnations_renewed"] == 0
    return told
