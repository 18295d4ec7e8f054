"""Debounced starts in every weather: a process begins once, with what the last start gave, and not before its time."""

from __future__ import annotations

import asyncio
from datetime import datetime

from perdure import Retry, attempt, now, step, workflow
from perdure.errors import ProcessBroken, StoreUnavailable
from perdure.testing.simulator import Cluster
from tests.simulator.misfortune import by_the_weather_alone

WAIT = 3.0
BEGUN: dict[str, set[str]] = {}
"""The keys under which each process has printed, by its id: the run is a part of them."""


@step(retry=Retry(attempts=60, first=0.2, cap=1.0), timeout=20)
async def printed(number: int, seconds: float) -> int:
    process, _, rest = attempt().idempotency_key.partition("/")
    BEGUN.setdefault(process, set()).add(rest)
    await asyncio.sleep(seconds)
    return number


@workflow
async def issue(number: int, seconds: float) -> tuple[int, datetime]:
    began = now()
    return await printed(number, seconds), began


async def issues(cluster: Cluster) -> None:
    """Some keys, each started again and again: what is answered begins with that start or with a later one, once."""
    BEGUN.clear()
    await asyncio.gather(*(_key(cluster, f"key {number}") for number in range(cluster.pick((1, 2, 3)))))


async def _insist(cluster: Cluster, key: str, number: int) -> str:
    """The id of the process that begins with this start, or with a later one."""
    while True:
        try:
            options = issue.options(key=key, debounce=WAIT)
            return (await cluster.client.start(options, number, cluster.pick((0.1, 2.0, 9.0)))).id
        except StoreUnavailable:
            await asyncio.sleep(0.5)


async def _key(cluster: Cluster, key: str) -> None:
    last: dict[str, int] = {}
    asked: dict[str, int] = {}
    for number in range(cluster.pick((4, 2, 8))):
        since = await cluster.client.store.now()
        id = await _insist(cluster, key, number)
        last[id], asked[id] = number, since
        await asyncio.sleep(cluster.pick((0.0, 1.0, 2.9, 3.0, 6.0)))
    for id in last:
        while True:
            try:
                number, began = await cluster.client.process(id, tuple[int, datetime]).result()
                break
            except ProcessBroken as error:
                row = await cluster.client.row(id)
                cluster.require("everything_ends", by_the_weather_alone(cluster, row), f"it is broken by {error}")
                await cluster.client.process(id).retry(who="anna")
        # A start whose answer was lost may have come to this process, and was made again for the next one.
        cluster.require("the_value_is_exact", last[id] <= number <= last[id] + 1, f"{key}: {number}, not {last[id]}")
        early = began.timestamp() * 1e6 - asked[id] < WAIT * 1e6
        cluster.require("no_early_timer", not early, f"{key} has begun too early after start {number}")
        cluster.require("effect_once", len(BEGUN[id]) == 1, f"{key} has printed under {BEGUN[id]}")
