"""Tasks of a limited queue, by several shares, in every weather: a scenario for the tests of the simulator itself."""

from __future__ import annotations

import asyncio

from perdure import step, workflow
from perdure.testing.simulator import Cluster


@step(queue="bank", timeout=20)
async def pay(number: int) -> int:
    await asyncio.sleep(0.2)
    return number


@workflow
async def payments(first: int) -> int:
    return sum(await asyncio.gather(*(pay(first + more) for more in range(4))))


async def limited_queue(cluster: Cluster) -> None:
    await cluster.client.queues.limit("bank", concurrency=cluster.pick((2, 1, 3)))
    handles = [await cluster.client.start(payments, 10 * number) for number in range(4)]
    if cluster.chance(0.3):
        await asyncio.sleep(1)
        await cluster.client.queues.block("bank", who="anna", why="the bank is away")
        await asyncio.sleep(2)
        await cluster.client.queues.unblock("bank", who="anna")
    assert [await handle.result() for handle in handles] == [40 * number + 6 for number in range(4)]
