"""A step that blocks its worker's event loop whenever it is run, among healthy neighbours: a scenario of its own."""

from __future__ import annotations

import asyncio

from perdure import Retry, step, workflow
from perdure.kernel.failure import Failure
from perdure.kernel.process import Status
from perdure.testing.simulator import Cluster
from tests.simulator.misfortune import by_the_weather_alone, dismissed

NEIGHBOURS = 6
SECONDS = 40.0


class Stage:
    """The history that is being played; ``hung`` are the names of those that it has hung so far."""

    cluster: Cluster
    hung: list[str]


@step(retry=Retry.NONE)
async def wait(seconds: float) -> None:
    await asyncio.sleep(seconds)


@step(retry=Retry.NONE)
async def block() -> None:
    Stage.hung.append(Stage.cluster.loop.current().name)
    await Stage.cluster.hang()


@step(retry=Retry.NONE)
async def block_once() -> str:
    if not Stage.hung:
        await block.function()
    return "went on"


@workflow
async def healthy(seconds: float) -> str:
    await wait(seconds)
    return "healthy"


@workflow
async def hanging() -> None:
    await block()


@workflow
async def hanging_once() -> str:
    return await block_once()


async def among_neighbours(cluster: Cluster) -> None:
    """Without other blows: two workers are hung, then one of its own, and then it is parked with what is known."""
    Stage.cluster, Stage.hung = cluster, []
    neighbours = [await cluster.client.start(healthy, SECONDS) for _ in range(NEIGHBOURS)]
    await asyncio.sleep(cluster.pick((1.0, 0.1, 5.0)))
    handle = await cluster.client.start(hanging)
    suspected: set[bytes] = set()
    looking = asyncio.create_task(_look(cluster, suspected))
    await cluster.settled(lambda row: row.status is not Status.RUNNING)
    await dismissed(looking)
    rows = {row.id: row for row in cluster.rows()}
    poison = rows[bytes.fromhex(handle.id.replace("-", ""))]
    cluster.require("the_hung_are_parked", poison.status is Status.BROKEN, f"it is {poison.status}")
    failure = Failure.shown(poison.error or b"")
    cluster.require("the_hung_are_parked", failure.type == "Hung", f"as {failure.type}")
    ordinary = [name for name in Stage.hung if "-alone" not in name]
    cluster.require("never_a_third_worker", len(ordinary) == 2, f"hung were {Stage.hung}")
    for one in neighbours:
        row = rows[bytes.fromhex(one.id.replace("-", ""))]
        cluster.require("neighbours_go_on", row.status is Status.COMPLETED, f"{row.status}")
    cluster.require("neighbours_are_no_suspects", suspected <= {poison.id}, f"{len(suspected)} of them were")


async def _look(cluster: Cluster, suspected: set[bytes]) -> None:
    """Note against whom deaths are counted, until what was in flight at them is recorded."""
    while True:
        suspected.update(row.id for row in cluster.rows() if row.deaths)
        await asyncio.sleep(0.1)


async def once(cluster: Cluster) -> None:
    """Silence counts, but once is not enough: it goes on elsewhere, within the time of a lease and a little."""
    Stage.cluster, Stage.hung = cluster, []
    handle = await cluster.client.start(hanging_once)
    began = cluster.loop.now
    cluster.require("one_hang_is_survived", await handle.result() == "went on", "")
    lease = cluster.swarm.options.lease_seconds
    cluster.require("within_a_lease", cluster.loop.now - began < lease + 5, f"{cluster.loop.now - began:g} s")


async def in_any_weather(cluster: Cluster) -> None:
    """What hangs whenever it is run ends up parked, whatever else happens, and everybody else goes on."""
    Stage.cluster, Stage.hung = cluster, []
    for _ in range(NEIGHBOURS):
        await cluster.client.start(healthy, cluster.pick((5.0, 0.5, 40.0)))
    handle = await cluster.client.start(hanging)
    await asyncio.sleep(cluster.pick((20.0, 5.0, 60.0)))
    cluster.heal()
    await cluster.settled(lambda row: row.status is not Status.RUNNING, stall=600.0)
    hung = bytes.fromhex(handle.id.replace("-", ""))
    for row in cluster.rows():
        expected = Status.BROKEN if row.id == hung else Status.COMPLETED
        good = row.status is expected or by_the_weather_alone(cluster, row)
        cluster.require("everybody_else_goes_on", good, f"{row.status} is not {expected}")
