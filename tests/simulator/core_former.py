"""Processes that go on as new again and again, while their former runs are pruned behind them, in every weather."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from perdure import continue_as_new, publish, receive, step, workflow
from perdure.runtime.options import WorkerOptions
from perdure.runtime.sweeps import finished_long_ago
from perdure.testing.simulator import Cluster, Swarm
from perdure.testing.simulator.choice import Choices

PAID = "paid"


@step(timeout=20)
async def bill(month: int) -> int:
    await asyncio.sleep(0.1)
    return month


@workflow
async def tenancy(month: int, last: int, total: int) -> None:
    """A month is a bill and a payment; payments come early at times, and are left to the months behind.

    It never ends by itself: what ends would be pruned before anybody has asked for its result.
    """
    await bill(month)
    publish("month", month)
    total += await receive(PAID, int)
    await asyncio.sleep(0.5)
    if month < last:
        continue_as_new(month + 1, last, total)
    publish("total", total)
    await receive("over")


def weather(choices: Choices) -> Swarm:
    """Any weather, where runs are kept for seconds, and looked for as often."""
    drawn = Swarm.drawn(choices)
    kept = choices.pick((2.0, 0.5, 6.0), "retention")
    options = WorkerOptions(
        lease_seconds=drawn.options.lease_seconds,
        beat_seconds=drawn.options.beat_seconds,
        stop_seconds=drawn.options.stop_seconds,
        retention_seconds=kept,
        key_retention_seconds=choices.pick((kept, 0.0, 20.0), "retention"),
    )
    return replace(drawn, options=options)


async def tenancies(cluster: Cluster) -> None:
    """Some tenancies, whose payments come when they like; each value is exact, and nothing is heard twice or lost."""
    before, finished_long_ago.SECONDS = finished_long_ago.SECONDS, 0.5
    try:
        lasts = [cluster.pick((6, 3, 9)) for _ in range(cluster.pick((2, 1, 4)))]
        handles = [
            await cluster.client.start(tenancy.options(key=f"flat {n}"), 1, last, 0) for n, last in enumerate(lasts)
        ]
        for month in range(1, max(lasts) + 1):
            for number, (last, handle) in enumerate(zip(lasts, handles, strict=True)):
                if month <= last:
                    await handle.signal(PAID, month, key=f"{number}/{month}")
            await asyncio.sleep(cluster.pick((0.0, 0.5, 2.0)))
        for last, handle in zip(lasts, handles, strict=True):
            while (total := await handle.value("total", int, default=0)) == 0:
                await asyncio.sleep(1)
            exact = total == last * (last + 1) // 2
            cluster.require("the_value_is_exact", exact, f"of {last} months {total} was paid")
            await handle.terminate(who="Ann")
        for node in cluster.workers:
            if node.engine is not None:
                cluster.probe("a former run was pruned", int(node.engine.metrics()["runs_pruned"]))
    finally:
        finished_long_ago.SECONDS = before


tenancies.weather = weather  # type: ignore[attr-defined]
