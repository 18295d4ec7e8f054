"""Workers of the first release beside today's: they do not see the letters that a newer one has heard and left."""

from __future__ import annotations

import asyncio

from perdure import Handle, receive, step, workflow
from perdure.testing.simulator import Cluster
from tests.simulator.ending import ends_with


@step
async def pack(part: int) -> int:
    await asyncio.sleep(0.1)
    return part


@workflow(name="order with signals")
async def order(rounds: int) -> int:
    """Numbers come while it waits for something else, and are wanted then."""
    total = 0
    for part in range(rounds):
        await receive("go")
        total += await pack(part)
        total += await receive("number", int)
    return total


async def beside(cluster: Cluster) -> None:
    """All workers but one are of the first release, and stay so, whatever becomes of them."""
    cluster.former |= {node.name for node in cluster.workers}
    for node in cluster.workers:
        node.kill()
        cluster.storm.restart(node)
    cluster.node("today", work=True).start()
    orders: list[tuple[int, Handle[int]]] = []
    for _ in range(cluster.pick((3, 1, 6))):
        rounds = cluster.pick((2, 1, 4))
        orders.append((rounds, await cluster.client.start(order, rounds)))
        await asyncio.sleep(cluster.pick((0.0, 0.7)))
    for name, odd in (("number", 0), ("go", 0), ("number", 1), ("go", 1)):
        for rounds, handle in orders:
            for number in range(odd, rounds, 2):
                await handle.signal(name, 10 if name == "number" else None, key=f"{name} {number}")
                await asyncio.sleep(cluster.pick((0.0, 0.3)))
        await asyncio.sleep(cluster.pick((1.0, 0.0, 4.0)))
    cluster.heal()
    for rounds, handle in orders:
        await ends_with(cluster, handle, sum(range(rounds)) + 10 * rounds, f"an order of {rounds} rounds")
    for engine in cluster.engines:
        cluster.probe("an overlooked signal was found", int(engine.telemetry.counters["letters_overlooked"]))
