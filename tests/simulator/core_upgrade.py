"""A rolling upgrade: the schema rises under workers that know an older one; newer ones write what these do not know."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from perdure import Handle, receive, step, workflow
from perdure.kernel.process import Process, Status
from perdure.kernel.stored import UnknownNumber
from perdure.testing.simulator import Cluster, Swarm
from perdure.testing.simulator.choice import Choices
from tests.simulator.ending import ends_with


@step
async def pack(part: int) -> int:
    await asyncio.sleep(0.1)
    return part


@workflow(name="order under way")
async def order(rounds: int) -> int:
    """Each round has a timer, which newer workers record in their own way, and a signal that is awaited behind it."""
    total = 0
    for part in range(rounds):
        total += await pack(part)
        await asyncio.sleep(1.0)
        if part % 2:
            total += await receive("go", int)
    return total


def weather(choices: Choices) -> Swarm:
    """Any weather; in a half of it commits often wait for a lock, for longer than most leases last."""
    drawn = Swarm.drawn(choices)
    return replace(drawn, door=choices.pick((drawn.door, ("commit", "busy", 0.05)), "upgrade"))


async def rolling(cluster: Cluster) -> None:
    """Orders are under way; the database is migrated; one worker after the other starts anew, and the first stays."""
    orders: list[tuple[int, Handle[int]]] = []
    for _ in range(cluster.pick((3, 1, 6))):
        rounds = cluster.pick((4, 2, 9))
        orders.append((rounds, await cluster.client.start(order, rounds)))
        await asyncio.sleep(cluster.pick((0.0, 0.7)))
    newer = cluster.node("newer", work=True)
    cluster.newer.add("newer")
    await asyncio.sleep(cluster.pick((1.0, 0.0, 4.0)))
    cluster.migrate()
    newer.start()
    for rounds, handle in orders:
        for number in range(rounds // 2):
            await handle.signal("go", 10, key=f"go {number}")
        await asyncio.sleep(cluster.pick((0.5, 0.0, 3.0)))
    for node in cluster.workers[1:]:
        if cluster.pick((True, False)):
            cluster.newer.add(node.name)
            if cluster.pick((True, False)):
                cluster.loop.create_task(cluster.storm.stop(node))
            else:
                node.kill()
                cluster.storm.restart(node)
    await asyncio.sleep(cluster.pick((5.0, 20.0, 1.0)))
    cluster.heal()
    for rounds, handle in orders:
        await _ends(cluster, rounds, handle)
    told = [event for known in cluster.monitor.known.values() for event in known.events]
    cluster.probe("a newer worker wrote an unknown type", sum(type(one.type) is UnknownNumber for one in told))
    for engine in cluster.engines:
        cluster.probe("a process was left to newer workers", int(engine.telemetry.counters["processes_handed_over"]))


async def _ends(cluster: Cluster, rounds: int, handle: Handle[int]) -> None:
    """It is never parked meanwhile: a newer worker lives, or will again in a moment."""

    def look(row: Process) -> None:
        why = f"{rounds} rounds: {row.error!r}"
        cluster.require("what_is_newer_is_no_damage", row.status is not Status.BROKEN, why)

    exact = sum(range(rounds)) + 10 * (rounds // 2)
    await ends_with(cluster, handle, exact, f"an order of {rounds} rounds", look)


rolling.weather = weather  # type: ignore[attr-defined]
