"""Schedules in virtual time, whatever is killed, lost or late."""

from __future__ import annotations

import pytest

from perdure import Engine
from perdure.clock import SECOND
from perdure.testing.simulator import Cluster, Swarm, simulate
from tests.simulator.core_schedules import almanac, issue
from tests.simulator.form import seeds


@pytest.mark.parametrize("seed", seeds(12, 60))
def test_each_instant_comes_once_or_is_counted_as_left_out_in_any_weather(seed: int) -> None:
    simulate(almanac, seed, workflows=[issue]).check()


@pytest.mark.long
def test_a_history_with_schedules_is_repeated_to_the_byte() -> None:
    one = simulate(almanac, 3, workflows=[issue]).check()
    assert one.digest() == simulate(almanac, 3, workflows=[issue]).digest()


def test_a_round_waits_until_the_time_of_the_store_itself_has_come() -> None:
    async def waited(engine: Engine) -> None:
        for seconds in (-5, 0, 5):
            instant = await engine.store.now() + seconds * SECOND
            await engine.doors.reached(instant)
            reached = await engine.store.now()
            assert instant <= reached < instant + 6 * SECOND

    async def scenario(cluster: Cluster) -> None:
        await cluster.workers[0].call(waited)

    simulate(scenario, workflows=[issue], swarm=Swarm(nodes=1)).check()


def test_no_instant_comes_early_where_clocks_are_put_back_and_answers_take_a_second() -> None:
    swarm = Swarm(latencies=(1.0,), blows={"clock back": 0.3}, storm_seconds=30.0)
    for seed in range(10):
        simulate(almanac, seed, workflows=[issue], swarm=swarm).check()
