"""Kills: the busiest of three workers gets SIGKILL; when what it held is freed, and when its next result is written."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from perdure import limits
from perdure.engine import Engine
from perdure.kernel.event import EventType
from perdure.store.base import Search
from tests.load.pool import LIMIT, Pool, pool_on
from tests.load.program import steady
from tests.load.verdict import Verdict, part

WORKERS = 3
PROCESSES = 150
STEPS = 15
KILLS = 8
NEXT_COMMIT_SECONDS = 1.2
SHARE = 0.95
SETTLED_SECONDS = limits.PROBE_GRACE_SECONDS + 1.0
"""Workers that have just connected take nobody for dead yet."""
UNDER_WAY_SECONDS = 1.0
WRITES = (EventType.REVIVED, EventType.STEP_COMPLETED)


async def next_commits(url: str, folder: Path, kills: int, processes: int) -> tuple[list[float], list[float]]:
    """After each kill, of each process held: seconds until it is freed, and until its next result is written."""
    freed: list[float] = []
    waited: list[float] = []
    async with pool_on(url, folder) as pool, Engine(url, migrate=True) as client:
        for _ in range(kills):
            await pool.ready(WORKERS - len(pool.members))
            await asyncio.sleep(SETTLED_SECONDS)
            handles = await client.start_many(steady, [(STEPS,) for _ in range(processes)])
            await asyncio.sleep(UNDER_WAY_SECONDS)
            moment, held = await _killed(client, pool, tuple(handle.id_bytes for handle in handles))
            assert [await handle.result(LIMIT) for handle in handles] == [STEPS] * processes
            for id in held:
                events = [one for one in await client.store.history(id, 1, types=WRITES) if one.at > moment]
                freed.append(min(one.at - moment for one in events if one.type is EventType.REVIVED) / 1e6)
                waited.append(min(one.at - moment for one in events if one.type is not EventType.REVIVED) / 1e6)
    return freed, waited


async def _killed(client: Engine, pool: Pool, ids: tuple[bytes, ...]) -> tuple[int, list[bytes]]:
    """Kill the one that holds most; when it was, by the store's clock, and what it held."""
    search = Search(ids=ids, limit=len(ids))
    owners = Counter(row.owner for row in await client.store.search(search) if row.owner)
    busiest = owners.most_common(1)[0][0]
    [name] = [worker.name for worker in await client.store.workers() if worker.id == busiest]
    [victim] = [member for member in pool.members if name.endswith(f":{member.pid}")]
    await victim.kill()
    moment = await client.store.now()  # a commit of its own would count before
    pool.members.remove(victim)
    return moment, [row.id for row in await client.store.search(search) if row.owner == busiest]


async def killed(url: str, folder: Path) -> Verdict:
    """The long form."""
    verdict = Verdict(f"{KILLS} kills of one of {WORKERS} workers with {PROCESSES} processes in hand")
    freed, waited = await next_commits(url, folder, KILLS, PROCESSES)
    verdict.note(f"{len(waited):,} were held; half of them were freed within {part(freed, 0.5):.2f} s")
    verdict.note(f"{SHARE:.0%} within {part(freed, SHARE):.2f} s; half committed within {part(waited, 0.5):.2f} s")
    verdict.bound(f"{SHARE:.0%} within", part(waited, SHARE), NEXT_COMMIT_SECONDS)
    verdict.note(f"the last after {max(waited):.2f} s")
    return verdict
