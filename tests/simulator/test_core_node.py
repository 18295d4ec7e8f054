"""Nodes: killed without a goodbye, stopped and continued, asked to stop; a suspect gets a node of its own."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from perdure import Engine, ProcessFailed, step, workflow
from perdure.kernel.process import Status
from perdure.testing.simulator import Cluster, NodeKilled, Swarm, simulate

seen: Counter[str] = Counter()


@step
async def slow(seconds: float) -> None:
    seen["begun"] += 1
    try:
        await asyncio.sleep(seconds)
    finally:
        seen["finally"] += 1
    seen["done"] += 1


@workflow
async def one_step(seconds: float) -> str:
    await slow(seconds)
    return "done"


def played(scenario: object, workers: int = 2, **more: float) -> None:
    seen.clear()
    swarm = Swarm(nodes=workers, **more)  # type: ignore[arg-type]
    simulate(scenario, 7, workflows=[one_step, poison], swarm=swarm).check()  # type: ignore[arg-type]


async def owner(cluster: Cluster) -> object:
    """The node that has the only process in hand."""
    await asyncio.sleep(0.5)
    (row,) = cluster.rows()
    (node,) = (
        node for node in cluster.workers
        if node.engine is not None and node.engine.worker is not None
        and node.engine.worker.incarnation.id == row.owner
    )  # fmt: skip
    return node


def test_nothing_of_a_killed_node_runs_any_more_and_another_one_goes_on() -> None:
    async def scenario(cluster: Cluster) -> None:
        handle = await cluster.client.start(one_step, 3.0)
        node = await owner(cluster)
        node.kill()  # type: ignore[attr-defined]
        began = cluster.loop.now
        assert await handle.result() == "done"
        assert cluster.loop.now - began < 5
        assert seen == {"begun": 2, "finally": 1, "done": 1}

    played(scenario)


def test_a_late_answer_of_a_paused_node_is_refused() -> None:
    async def scenario(cluster: Cluster) -> None:
        handle = await cluster.client.start(one_step, 1.0)
        node = await owner(cluster)
        node.pause()  # type: ignore[attr-defined]
        assert await handle.result() == "done"
        assert cluster.loop.now > cluster.swarm.options.lease_seconds
        node.resume()  # type: ignore[attr-defined]
        await asyncio.sleep(5)
        assert seen["begun"] == 2
        (row,) = cluster.rows()
        assert row.version <= 3

    played(scenario)


def test_a_node_that_is_asked_to_stop_hands_back_what_it_has() -> None:
    async def scenario(cluster: Cluster) -> None:
        handle = await cluster.client.start(one_step, 20.0)
        node = await owner(cluster)
        node.terminate()  # type: ignore[attr-defined]
        assert await node.ended() == 0  # type: ignore[attr-defined]
        (row,) = cluster.rows()
        assert row.deaths == 0
        assert await handle.result() == "done"

    played(scenario)


def test_a_call_on_a_node_dies_with_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        node = cluster.node("caller")
        node.start()

        async def start_and_wait(engine: Engine) -> object:
            return await (await engine.start(one_step.options(key="k"), 5.0)).result()

        call = asyncio.ensure_future(node.call(start_and_wait))
        await asyncio.sleep(1)
        node.kill()
        with pytest.raises(NodeKilled):
            await call
        assert await (await cluster.client.handle(one_step, "k")).result() == "done"

    played(scenario)


@step
async def die() -> None:
    seen["deaths"] += 1
    await asyncio.sleep(0.2)
    await Death.cluster.die()


@workflow
async def poison() -> None:
    await die()


class Death:
    """The cluster whose node a step kills."""

    cluster: Cluster


def test_a_poison_runs_alone_after_three_deaths_and_is_parked_with_its_neighbours_unharmed() -> None:
    async def scenario(cluster: Cluster) -> None:
        Death.cluster = cluster
        healthy = [await cluster.client.start(one_step, 30.0) for _ in range(5)]
        await cluster.client.start(poison)
        for handle in healthy:
            assert await handle.result() == "done"
        await cluster.settled()
        (row,) = (row for row in cluster.rows() if row.kind == "poison")
        assert row.status is Status.BROKEN and row.deaths == 3 and row.alone_deaths == 3
        assert any(node.alone for node in cluster.nodes)

    played(scenario)


def test_what_a_scenario_finds_wrong_is_told_with_the_seed() -> None:
    async def scenario(cluster: Cluster) -> None:
        raise ProcessFailed("as the test wants it", type="T", detail="")

    history = simulate(scenario, 3, workflows=[one_step], swarm=Swarm())
    assert history.violation is not None and history.violation.law == "scenario"
    with pytest.raises(AssertionError, match="as the test wants it"):
        history.check()


def test_a_worker_whose_session_was_lost_seems_dead_and_goes_on_as_another_incarnation() -> None:
    """A wrong guess is harmless: whoever is taken for dead is told so, and its process is finished by somebody."""

    async def scenario(cluster: Cluster) -> None:
        handle = await cluster.client.start(one_step, 3.0)
        node = await owner(cluster)
        cluster.server.loop.call_in(cluster.loop.world, 0.0, node.pause)  # type: ignore[attr-defined]
        cluster.server.lost.add(node.life.number)  # type: ignore[attr-defined]
        await asyncio.sleep(2)
        node.resume()  # type: ignore[attr-defined]
        assert await handle.result() == "done"
        await asyncio.sleep(2)
        (row,) = cluster.rows()
        assert row.status is Status.COMPLETED
        assert sum(engine.metrics().get("workers_dead", 0) for engine in cluster.engines) == 1

    played(scenario)
