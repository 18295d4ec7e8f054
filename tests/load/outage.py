"""An outage: what many processes depend on is down; they call it little more than if it were not, and none fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

from perdure import limits
from perdure.engine import Engine
from tests.load.pool import LIMIT, pool_on
from tests.load.program import depending, marks
from tests.load.verdict import Verdict

EVERY_SECONDS = 0.015
SPENT_SECONDS = 10.0
TIMES_STEADY = 1.1
EARNED_A_SECOND = limits.RETRY_BUDGET_TRIES / limits.RETRY_BUDGET_SECONDS


async def outage(url: str, folder: Path, seconds: float) -> Verdict:
    """New ones come at a steady pace; after the budget is spent the calls are counted, then it is up again."""
    verdict = Verdict(f"dependency down for {seconds + SPENT_SECONDS:g} s")
    async with pool_on(url, folder) as pool, Engine(url, migrate=True) as client:
        await pool.ready()
        loop = asyncio.get_running_loop()
        handles = []
        counted = (0, 0, 0.0)
        begun = loop.time()
        while loop.time() < begun + SPENT_SECONDS + seconds:
            if not counted[0] and loop.time() >= begun + SPENT_SECONDS:
                counted = (len(handles), marks("calls"), loop.time())
            handles.append(await client.start(depending, len(handles)))
            await asyncio.sleep(EVERY_SECONDS)
        started, calls = len(handles) - counted[0], marks("calls") - counted[1]
        verdict.note(f"{started:,} new ones and {calls:,} calls in {loop.time() - counted[2]:.1f} s")
        verdict.bound("calls for each", calls / started, TIMES_STEADY)
        metrics = await pool.metrics()
        verdict.note(f"{metrics['retries_put_off']:,.0f} retries put off, {metrics['failed']:.0f} processes failed")
        (folder / "up").touch()
        up = loop.time()
        assert [await handle.result(LIMIT) for handle in handles] == list(range(len(handles)))
        verdict.note(f"all {len(handles):,} completed {loop.time() - up:.1f} s after it was up again")
    return verdict


async def counted(url: str, folder: Path, processes: int) -> int:
    """The short form: however long it takes, no more calls are made than the budget allows."""
    async with pool_on(url, folder) as pool, Engine(url, migrate=True) as client:
        await pool.ready()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        handles = await client.start_many(depending, [(n,) for n in range(processes)])
        async with asyncio.timeout(LIMIT):
            while (await pool.metrics())["retries_put_off"] < processes:
                await asyncio.sleep(0.05)
        calls = marks("calls")
        earned = (loop.time() - begun) * EARNED_A_SECOND
        assert processes <= calls <= processes + limits.RETRY_BUDGET_TRIES + earned + 1
        (folder / "up").touch()
        assert [await handle.result(LIMIT) for handle in handles] == list(range(processes))
    return calls
