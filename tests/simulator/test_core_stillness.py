"""What the law that nothing stands still does not accuse: a late command, a slow start, a worker with too old code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from perdure import Handle, Workflow, limits, patched, receive, step, workflow
from perdure.authoring.registry import Registry
from perdure.clock import SECOND
from perdure.kernel.claim import Claim
from perdure.runtime.options import WorkerOptions
from perdure.testing.simulator import Cluster, Swarm, simulate
from perdure.testing.simulator.node import Node


@step
async def doze(seconds: float) -> None:
    await asyncio.sleep(seconds)


@workflow
async def nap(seconds: float) -> str:
    await doze(seconds)
    return "awake"


async def taken_by_a_command(cluster: Cluster) -> None:
    """A command takes a process from its worker, and is never heard of again."""
    handle = await cluster.client.start(nap, 10.5)
    await asyncio.sleep(2)
    [row] = cluster.rows()
    lease = int(limits.SEIZED_SECONDS * SECOND)
    command = Claim(cluster.client.machine.new_id(), (), 1, lease, only=row.id, seize=True)
    assert (await cluster.client.store.claim(command)).claimed
    assert await handle.result() == "awake"


def test_a_process_that_a_command_took_and_left_goes_on_without_a_broken_law() -> None:
    for seed in range(3):
        simulate(taken_by_a_command, seed, workflows=[nap], swarm=Swarm()).check()


async def late_worker(cluster: Cluster) -> tuple[Handle[str], Node]:
    """A process is due before its only worker has started, which asks the store ten times; the second one fails."""
    [worker] = cluster.workers
    worker.kill()
    handle = await cluster.client.start(nap, 1.0)
    late = cluster.node("late", work=True)
    late.start()
    await asyncio.sleep(0.75)
    assert late.life is not None
    cluster.server.cut(late.life, 0.1, hangs=False)
    await asyncio.sleep(0.1)
    return handle, late


async def started_late(cluster: Cluster) -> None:
    handle, _ = await late_worker(cluster)
    for _ in range(14):
        await cluster.client.start(nap, 1.0)  # the law looks when something is written
    assert await handle.result() == "awake"
    cluster.probe("started slowly", int(cluster.loop.now > 11))


async def started_late_unseen(cluster: Cluster) -> None:
    handle, late = await late_worker(cluster)
    await late.opened()
    await cluster.client.start(nap, 1.0)  # the law looks for the first time
    cluster.probe("started slowly", int(cluster.loop.now > 11))
    assert await handle.result() == "awake"


@pytest.mark.parametrize("scenario", [started_late, started_late_unseen])
def test_a_worker_whose_start_takes_long_stands_still_only_after_it(
    scenario: Callable[[Cluster], Awaitable[None]],
) -> None:
    slow = Swarm(nodes=1, latencies=(0.8,), options=WorkerOptions(lease_seconds=20.0))
    assert simulate(scenario, workflows=[nap], swarm=slow).check().probes["started slowly"]


def older() -> Workflow[[], str]:
    """The old code of the greeting: not in the module, whose functions all count as the code of its workflows."""

    @workflow(name="greeting")
    async def greeting() -> str:
        return await receive("go", str)

    return greeting


@step
async def bow() -> None: ...


@step
async def rest() -> None:
    await asyncio.sleep(60)


@workflow
async def busy() -> None:
    await rest()


@workflow(name="greeting")
async def greeting() -> str:
    if patched("polite"):
        await bow()
    return await receive("go", str)


async def left_by_an_older_worker(cluster: Cluster) -> None:
    """A worker with old code claims what took a patch, when no newer one lives; when its lease ends it is busy."""
    [worker] = cluster.workers
    old, new = cluster.registry, Registry(greeting)
    worker.kill()
    cluster.registry = lambda: new
    newer = cluster.node("newer", work=True)
    newer.start()
    known, _ = old().versions.values()
    handle = await cluster.client.start(known)
    await asyncio.sleep(2)
    newer.kill()
    cluster.registry = old
    worker.start()
    await asyncio.sleep(1)
    await handle.signal("go", "hello")
    await asyncio.sleep(1)
    await cluster.client.start(busy)
    await asyncio.sleep(1)
    cluster.registry = lambda: new
    newer.start()
    assert await handle.result() == "hello"
    cluster.probe("left to newer code", sum(one.telemetry.counters["processes_handed_over"] for one in cluster.engines))


def test_a_worker_with_older_code_may_wait_for_the_end_of_its_lease() -> None:
    left, alone = 0, Swarm(nodes=1, options=WorkerOptions(in_flight=1))
    for seed in range(3):
        played = simulate(left_by_an_older_worker, seed, workflows=[older(), busy], swarm=alone)
        played.check()
        left += played.probes["left to newer code"]
    assert left
