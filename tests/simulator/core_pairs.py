"""Ten processes of two steps and a timer: a small scenario for the tests of the simulator itself."""

from __future__ import annotations

import asyncio
from collections import Counter

from perdure import attempt, step, workflow
from perdure.testing.simulator import Cluster

calls: Counter[str] = Counter()


@step
async def take(number: int) -> int:
    calls[attempt().idempotency_key] += 1
    await asyncio.sleep(0.3)
    return number


@step
async def give(number: int) -> int:
    return number + 1


@workflow
async def pair(number: int) -> int:
    taken = await take(number)
    await asyncio.sleep(1)
    return await give(taken)


async def ten_pairs(cluster: Cluster) -> None:
    await _pairs(cluster, 10)


async def _pairs(cluster: Cluster, count: int) -> None:
    handles = [await cluster.client.start(pair.options(key=f"{number}"), number) for number in range(count)]
    assert await cluster.client.results(handles) == list(range(1, count + 1))


async def naive(cluster: Cluster) -> None:
    """A wish that no engine can fulfil: no step of three processes is ever called again after a crash."""
    calls.clear()
    await _pairs(cluster, 3)
    again = [key for key, times in calls.items() if times > 1]
    cluster.require("called_once", not again, f"{len(again)} steps were called more than once")
