"""One process that is loud: ten thousand messages, or calls, to it; or one that kills whoever takes it in hand."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

from perdure.authoring.workflow import Workflow
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.kernel.process import Status
from tests.load.others import others
from tests.load.pool import LIMIT, Pool, pool_on
from tests.load.program import Counter, healthy, hot, marks, poison
from tests.load.verdict import Verdict, part

WORKERS = 2
BASELINE_SECONDS = 15.0
TIMES_BASELINE = 2.0
SENT_AT_ONCE = 100
SENT_A_SECOND = 5_000
"""A sender without a pace keeps a processor busy, and the worker another: then two processors are what is measured."""
CALLED_A_SECOND = 2_000
"""Fewer than two slow processors can answer, for the same reason."""
MOST_DEATHS = 10
LEAST_THROUGHPUT = 0.8
LANES = 40
"""All of them may be in hand with the poison: two deaths with neighbours, five at most to find it, three alone."""


async def sent(handle: Handle[int], messages: int, rate: float = math.inf) -> None:
    """Send them in their order, so many a second or as fast as they are taken; what goes together keeps its order."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for begin in range(0, messages, SENT_AT_ONCE):
        await asyncio.sleep(began + begin / rate - loop.time())
        portion = range(begin, min(begin + SENT_AT_ONCE, messages))
        await asyncio.gather(*(handle.signal("number", n) for n in portion))


async def called(handle: Handle[int], calls: int, rate: float = math.inf) -> None:
    """Call it so often, without waiting for the answers: what it has not answered yet is queued to it; then end it."""
    loop = asyncio.get_running_loop()
    began, under_way = loop.time(), set[asyncio.Task[int]]()
    for n in range(calls):
        if n % SENT_AT_ONCE == 0:
            await asyncio.sleep(began + n / rate - loop.time())
        under_way.add(asyncio.create_task(handle.call(Counter.count, n)))
    assert sorted(await asyncio.gather(*under_way)) == list(range(calls))
    await handle.call(Counter.end)


async def heard(engine: Engine, handle: Handle[int], messages: int) -> str:
    """It has heard each once and in order, or it would not have come to its end; its row says the same."""
    assert await handle.result(LIMIT) == messages
    row = await engine.row(handle.id)
    assert row.inbox == row.seen == messages
    assert row.events == messages + 1, "one event for each message, and the end"
    return f"{messages:,} messages to one process, each heard once and in order"


async def answered(engine: Engine, handle: Handle[int], calls: int) -> str:
    """It has answered each call once and in order, and then the one that ended it; its row says the same."""
    assert await handle.result(LIMIT) == calls
    row = await engine.row(handle.id)
    assert row.inbox == row.seen == calls + 1
    return f"{calls:,} calls to one machine, each answered once and in order"


async def hot_process(url: str, folder: Path, **asked: int) -> Verdict:
    """The long form: what others feel of it, while one hot process follows another."""
    ((what, many),) = asked.items()
    verdict = Verdict(f"hot process, {what}")
    async with pool_on(url, folder) as pool, Engine(url, migrate=True) as client:
        await pool.ready(WORKERS)
        sender = await pool.start("sender", **asked)
        await sender.said("ready")
        async with others(client) as before:
            await asyncio.sleep(BASELINE_SECONDS)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        hots: list[Handle[Any]] = []
        async with others(client) as meanwhile:
            while loop.time() < begun + BASELINE_SECONDS:
                sender.tell("another")
                hots.append(client.handle_of(await client.row(await sender.said("heard"))))
        each = (loop.time() - begun) / len(hots)
        for handle in hots:
            told = await (answered if what == "calls" else heard)(client, handle, many)
        verdict.note(f"{told}; {len(hots)} of them, {each:.1f} s each")
    base, loud = part(before.whole), part(meanwhile.whole)
    verdict.bound(
        f"p99 of {len(meanwhile.whole):,} others {loud * 1e3:.0f} ms, before {base * 1e3:.0f} ms: times",
        loud / base, TIMES_BASELINE,
    )  # fmt: skip
    return verdict


async def hot_counted(url: str, folder: Path, messages: int) -> str:
    """The short form: others that are started meanwhile end while the loud one is still at it."""
    async with pool_on(url, folder) as pool, Engine(url, migrate=True) as client:
        await pool.ready()
        handle = await client.start(hot, messages)
        await sent(handle, messages // 2)
        async with others(client) as small:
            await sent(handle, 0)
        assert len(small.whole) == small.started
        assert (await client.row(handle.id)).status is Status.RUNNING
        for n in range(messages // 2, messages):
            await handle.signal("number", n)
        return await heard(client, handle, messages)


async def calls_counted(url: str, folder: Path, calls: int) -> str:
    """The same with calls: all of them are queued before the first is answered."""
    async with pool_on(url, folder) as pool, Engine(url, migrate=True) as client:
        handle = await client.start(Counter.begin)
        calling = asyncio.create_task(called(handle, calls))
        async with asyncio.timeout(LIMIT):
            while (await client.row(handle.id)).inbox < calls:
                await asyncio.sleep(0.1)
        await pool.ready()
        await calling
        return await answered(client, handle, calls)


async def poisoned(url: str, folder: Path, processes: int) -> Verdict:
    """The healthy ones by themselves, then with a poisonous one among them; workers that die are replaced."""
    verdict = Verdict(f"poison among {processes:,} healthy ones")
    async with pool_on(url, folder) as pool, Engine(url, migrate=True) as client:
        await pool.ready(WORKERS)
        alone = await _healthy(client, processes)
        replacing = asyncio.create_task(_replaced(pool))
        deadly = asyncio.create_task(parked(client, poison))
        meanwhile = await _healthy(client, processes)
        await deadly
        replacing.cancel()
        row = await client.row(deadly.result().id)
        assert row.status is Status.BROKEN
        verdict.note(f"it is parked: {(await client.process(row.id).status()).waiting[:90]}")
        verdict.bound("workers that died of it", marks("deaths"), MOST_DEATHS)
        verdict.note(
            f"all {processes:,} healthy ones finished, {alone:.0f} a second without it, {meanwhile:.0f} with it"
        )
        verdict.bound("slower by", alone / meanwhile, 1 / LEAST_THROUGHPUT)
    return verdict


async def _healthy(client: Engine, processes: int) -> float:
    """Run so many, some at once; how many a second."""
    loop, left = asyncio.get_running_loop(), iter(range(processes))
    begun = loop.time()

    async def lane() -> None:
        for n in left:
            assert await (await client.start(healthy, n)).result(LIMIT) == n

    await asyncio.gather(*(lane() for _ in range(LANES)))
    return processes / (loop.time() - begun)


async def parked(client: Engine, flow: Workflow[[], None]) -> Handle[None]:
    """Start it and wait until it runs no more."""
    handle = await client.start(flow)
    async with asyncio.timeout(LIMIT):
        while (await client.row(handle.id)).status is Status.RUNNING:
            await asyncio.sleep(0.1)
    return handle


async def _replaced(pool: Pool) -> None:
    """Start a worker for each that died."""
    while True:
        for member in [member for member in pool.members if not member.alive]:
            pool.members.remove(member)
            await pool.ready()
        await asyncio.sleep(0.1)
