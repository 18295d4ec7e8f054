"""Payments on a database whose backup is put back under running workers: what it lacks is told and held."""

from __future__ import annotations

import asyncio

from perdure.kernel.names import id_text
from perdure.runtime.options import WorkerOptions
from perdure.testing.simulator import Cluster, Swarm
from perdure.testing.simulator.choice import Choices
from perdure.testing.simulator.failover import Loss
from tests.simulator.core_failover import looked_after, payment

OLD_SECONDS = 2.0
"""So old is a backup at least: all workers have beaten since."""


def weather(choices: Choices) -> Swarm:
    """Quick calls that seldom fail: whoever is slower than all others have waited for may be too late."""
    return Swarm(
        nodes=1 + choices.pick((1, 2, 3), "swarm"),
        latencies=choices.pick(((0.0005,), (0.0005, 0.004)), "scale"),
        faults={fault: choices.pick((0.0, 0.01), "swarm") for fault in ("failed after", "failed before")},
        blows={"clock back": choices.pick((0.0, 0.0, 0.05), "swarm")},
        storm_seconds=10.0,
        deaf=choices.pick((0.0, 1.0), "swarm"),
        backups=True,
        options=WorkerOptions(lease_seconds=5.0, beat_seconds=0.5, stop_seconds=2.0),
    )


async def restoring(cluster: Cluster) -> None:
    """Some payments, a backup of a moment with some under way, more of them, and the backup is put back."""
    keys = [f"payment/{number}" for number in range(2 * cluster.pick((2, 1, 4)))]
    handles = []
    await asyncio.sleep(1.0)
    for number, key in enumerate(keys[: len(keys) // 2]):
        handles.append(await cluster.client.start(payment.options(key=key), number))
    await asyncio.sleep(cluster.pick((0.15, 0.01, 0.3, 0.45)))
    copy = cluster.server.back_up()
    await asyncio.sleep(OLD_SECONDS + 0.1 * cluster.draw(10))
    for number, key in enumerate(keys[len(keys) // 2 :], len(keys) // 2):
        handles.append(await cluster.client.start(payment.options(key=key), number))
    await asyncio.sleep(cluster.pick((0.15, 0.01, 0.3, 0.45, 1.0)))
    lost: list[Loss] = cluster.restore(copy)
    copy.close()
    await asyncio.sleep(12)
    cluster.heal()
    for number, handle in enumerate(handles):
        await looked_after(cluster, number, handle, keys[number])
    told = "\n".join(text for _, _, text in cluster.log.entries() if "set back by" in text)
    for loss in lost:
        id = id_text(loss.process.id)
        known = any(knower.stands for knower in loss.knowers)
        cluster.require("losses_are_told", not known or id in told, f"{id} was set back, and nobody says so")
        cluster.probe("a process was set back")


restoring.weather = weather  # type: ignore[attr-defined]
