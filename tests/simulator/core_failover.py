"""Payments on a server that fails over to a standby which lags behind: what is lost is told and held."""

from __future__ import annotations

import asyncio

from perdure import Handle, step, workflow
from perdure.errors import ProcessNotFound, StoreError
from perdure.kernel.names import id_text
from perdure.kernel.process import FINAL, Status
from perdure.runtime.options import WorkerOptions
from perdure.testing.simulator import Cluster, Swarm
from perdure.testing.simulator.choice import Choices
from perdure.testing.simulator.failover import Loss

PATIENCE = 600
"""So many looks, every half second, must suffice for a process to end."""
BY = {"who": "Ann", "why": "she has looked what was done"}


@step
async def charge(number: int) -> int:
    await asyncio.sleep(0.1)
    return number


@workflow
async def payment(first: int) -> int:
    total = await charge(first)
    await asyncio.sleep(0.3)
    total += await charge(first + 1)
    return total + await charge(first + 2)


def weather(choices: Choices) -> Swarm:
    """Quick calls that seldom fail: whoever is slower than all others have waited for may be too late."""
    return Swarm(
        nodes=1 + choices.pick((1, 2, 3), "swarm"),
        latencies=choices.pick(((0.0005,), (0.0005, 0.004), (0.0005, 0.05)), "scale"),
        faults={fault: choices.pick((0.0, 0.01), "swarm") for fault in ("failed after", "failed before")},
        blows={
            blow: choices.pick((0.0, 0.0, 0.05), "swarm")
            for blow in ("kill", "pause", "stop", "clock forward")
        },
        storm_seconds=10.0,
        conflict=choices.pick((0.0, 0.05), "swarm"),
        deaf=choices.pick((0.0, 1.0), "swarm"),
        lag=choices.pick((1, 2, 3, 6), "swarm"),
        options=WorkerOptions(lease_seconds=choices.pick((5.0, 2.0), "swarm"), beat_seconds=0.5, stop_seconds=2.0),
    )  # fmt: skip


async def failing_over(cluster: Cluster) -> None:
    """Some payments, one or two fail-overs in the middle of it, and people who look and resume."""
    keys = [f"payment/{number}" for number in range(cluster.pick((2, 1, 6)))]
    handles = [await cluster.client.start(payment.options(key=key), number) for number, key in enumerate(keys)]
    lost: list[Loss] = []
    for _ in range(cluster.pick((1, 2))):
        await asyncio.sleep(cluster.pick((0.15, 0.01, 0.3, 0.45, 0.7)) + 0.01 * cluster.draw(10))
        lost += cluster.fail_over(1 + cluster.draw(cluster.swarm.lag))
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


async def looked_after(cluster: Cluster, number: int, handle: Handle[int], key: str) -> None:
    """See to it that a payment comes to its end, as people do: resume what is held, start again what is gone."""
    engine = cluster.client
    for _ in range(PATIENCE):
        try:
            row = await engine.row(handle.id_bytes)
        except ProcessNotFound:
            cluster.probe("a process was lost and started again")
            handle = await engine.start(payment.options(key=key), number)
            continue
        except StoreError:
            continue  # the connection was lost, and is made again
        if row.status in FINAL:
            cluster.require("ends_well", await handle.result() == 3 * number + 3, f"{key} came to {row}")
            return
        if row.status is Status.HELD:
            cluster.probe("a process that was set back was held")
            await engine.process(row.id).resume(**BY)
        await asyncio.sleep(0.5)
    cluster.require("liveness", False, f"{key} does not come to its end")


failing_over.weather = weather  # type: ignore[attr-defined]
