"""What excuses it that an innocent process is parked: the weather killed its worker each time, and nothing else did."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from perdure.kernel.process import Status
from perdure.limits import ALONE_DEATHS, SUSPECT_DEATHS
from perdure.testing.simulator import Cluster, Node, Swarm, simulate
from tests.simulator import core_suspects
from tests.simulator.misfortune import by_the_weather_alone


async def _its_worker(cluster: Cluster, dead: set[bytes], *, alone: bool) -> tuple[Node, bytes]:
    """The node that has the only process in hand, and its incarnation, as soon as that is none of the dead."""
    while True:
        await asyncio.sleep(0.5)
        (row,) = cluster.rows()
        for node in cluster.workers:
            worker = node.built.worker if node.built is not None else None
            if row.owner not in dead and worker is not None and worker.incarnation.id == row.owner:
                assert node.alone is alone
                return node, worker.incarnation.id


async def _parked(cluster: Cluster, by_weather: Sequence[bool]) -> list[bytes]:
    """Have the one innocent process parked; the weather kills its quarantine workers, or something else does."""
    core_suspects.Now.cluster, core_suspects.Now.begun = cluster, 0
    await cluster.client.start(core_suspects.innocent, core_suspects.LASTS_SECONDS)
    dead: list[bytes] = []
    for weather in (*[True] * SUSPECT_DEATHS, *by_weather):
        node, worker = await _its_worker(cluster, set(dead), alone=len(dead) >= SUSPECT_DEATHS)
        dead.append(worker)
        if weather:
            cluster.storm.kill(node)
        else:
            node.kill()
            cluster.storm.restart(node)
    await cluster.settled()
    (row,) = cluster.rows()
    assert row.status is Status.BROKEN
    return dead[SUSPECT_DEATHS:]


@pytest.mark.parametrize("guilty", [None, *range(ALONE_DEATHS)])
def test_whoever_is_parked_is_excused_only_if_the_weather_killed_its_worker_every_time(guilty: int | None) -> None:
    async def scenario(cluster: Cluster) -> None:
        await _parked(cluster, [number != guilty for number in range(ALONE_DEATHS)])
        (row,) = cluster.rows()
        assert by_the_weather_alone(cluster, row) is (guilty is None)

    simulate(scenario, workflows=[core_suspects], swarm=Swarm(nodes=2)).check()


def test_a_death_alone_among_others_in_hand_is_excused_by_no_weather() -> None:
    async def scenario(cluster: Cluster) -> None:
        workers = await _parked(cluster, [True] * ALONE_DEATHS)
        (row,) = cluster.rows()
        assert [cluster.storm.killed[worker] for worker in workers] == [{row.id}] * ALONE_DEATHS
        cluster.storm.killed[workers[1]] |= {b"of another one.."}
        assert not by_the_weather_alone(cluster, row)

    simulate(scenario, workflows=[core_suspects], swarm=Swarm(nodes=2)).check()


def test_what_code_does_to_its_own_worker_is_not_the_weathers_doing() -> None:
    async def scenario(cluster: Cluster) -> None:
        core_suspects.Now.cluster, core_suspects.Now.begun = cluster, 0
        await cluster.client.start(core_suspects.guilty)
        await cluster.settled()
        (row,) = cluster.rows()
        assert row.status is Status.BROKEN and not by_the_weather_alone(cluster, row)
        assert not cluster.storm.killed

    simulate(scenario, workflows=[core_suspects], swarm=Swarm(nodes=2)).check()


@pytest.mark.parametrize("fault", ["died before", "session lost"])
def test_a_worker_that_a_call_to_the_store_kills_or_parts_from_its_session_was_struck_by_the_weather(
    fault: str,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        core_suspects.Now.cluster, core_suspects.Now.begun = cluster, 0
        await cluster.client.start(core_suspects.innocent, 8.0)
        node, worker = await _its_worker(cluster, set(), alone=False)
        life, once = node.life, iter([fault])
        cluster.server.fate = lambda store, door: next(once, "") if store.life is life else ""
        await cluster.settled()
        (row,) = cluster.rows()
        assert cluster.storm.killed == {worker: {row.id}}

    simulate(scenario, workflows=[core_suspects], swarm=Swarm(nodes=2)).check()


def test_a_worker_that_stops_while_it_is_cut_off_from_the_database_was_struck_by_the_weather() -> None:
    async def scenario(cluster: Cluster) -> None:
        core_suspects.Now.cluster, core_suspects.Now.begun = cluster, 0
        await cluster.client.start(core_suspects.innocent, 8.0)
        node, worker = await _its_worker(cluster, set(), alone=False)
        assert node.life is not None
        cluster.server.cut(node.life, 60.0, hangs=False)
        node.terminate()
        await node.ended()
        (row,) = cluster.rows()
        assert cluster.storm.killed == {worker: {row.id}}
        await cluster.settled()

    simulate(scenario, workflows=[core_suspects], swarm=Swarm(nodes=2)).check()
