"""The wall clock is set back or forward: timers wait for the store's time, and nobody asks for it without a pause."""

from __future__ import annotations

import asyncio

from perdure import Retry, StepError, receive, step, workflow
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Process
from perdure.kernel.retry import decode_attempt
from perdure.runtime.options import WorkerOptions
from perdure.testing.simulator import Cluster, Swarm, simulate
from tests.simulator.form import seeds


@workflow
async def nap(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "awake"


async def thirty_seconds_back(cluster: Cluster) -> None:
    handles = [await cluster.client.start(nap, 1.5) for _ in range(5)]
    await asyncio.sleep(1)
    cluster.wall.jump(-30)
    assert [await handle.result() for handle in handles] == ["awake"] * 5
    early = sum(engine.metrics().get("commits_early", 0) for engine in cluster.engines)
    cluster.require("no_hurry", early < 5 * 60, f"{early} commits were written too early in 30 s")


def test_timers_ring_in_time_although_the_clock_was_put_back_and_do_not_hammer_the_store() -> None:
    for seed in seeds(2, 5):
        history = simulate(thirty_seconds_back, seed, workflows=[nap], swarm=Swarm()).check()
        assert history.seconds < 5, "time goes on from where it was"


async def a_year_ahead_for_a_moment(cluster: Cluster) -> None:
    sleeping = await cluster.client.start(nap, 100.5)
    await asyncio.sleep(1)
    cluster.wall.jump(365 * 24 * 3600.0)
    assert await sleeping.result() == "awake", "what slept over that year is due, as after a long suspension"
    cluster.wall.jump(-365 * 24 * 3600.0)
    loop = asyncio.get_running_loop()
    began = loop.time()
    fresh = [await cluster.client.start(nap, 20.5) for _ in range(3)]
    assert [await handle.result() for handle in fresh] == ["awake"] * 3
    took = loop.time() - began
    cluster.require("time_goes_on", 20 < took < 25, f"a timer of 20.5 s took {took:.1f} s")


def test_a_clock_that_was_a_year_ahead_for_a_moment_stops_no_timer() -> None:
    for seed in seeds(2, 5):
        simulate(a_year_ahead_for_a_moment, seed, workflows=[nap], swarm=Swarm()).check()


async def asked_to_mend(cluster: Cluster) -> None:
    await asyncio.sleep(1)
    cluster.wall.jump(20)
    await asyncio.sleep(2)
    cluster.wall.jump(-20)
    await asyncio.sleep(2)
    view = await cluster.client.clock.state()
    cluster.require("time_goes_on", 17 < view.ahead_seconds < 21, f"{view}")
    await cluster.client.clock.mend(who="ann", why="a schedule")
    for _ in range(200):
        await asyncio.sleep(1)
        if not (await cluster.client.clock.state()).ahead_seconds:
            return
    cluster.require("time_goes_on", False, "the store's time does not come back into step")


def test_the_stores_time_comes_back_into_step_when_a_person_asks_for_it() -> None:
    for seed in seeds(2, 5):
        assert simulate(asked_to_mend, seed, workflows=[nap], swarm=Swarm()).check().seconds < 90


async def everybody_lives(cluster: Cluster) -> None:
    await asyncio.sleep(1)
    cluster.wall.jump(-60)
    worker = cluster.workers[1]
    worker.pause()
    await asyncio.sleep(3)  # less than its lease
    worker.resume()
    await asyncio.sleep(20)
    ended = sum(engine.metrics().get("workers_silent", 0) for engine in cluster.engines)
    cluster.require("nobody_is_ended", not ended, f"{ended} living workers were ended")


def test_a_worker_that_carried_the_time_too_far_ends_nobody_by_it() -> None:
    for seed in seeds(2, 5):
        simulate(everybody_lives, seed, workflows=[nap], swarm=Swarm(nodes=3)).check()


@step
async def slow() -> None:
    await asyncio.sleep(0.9)


@step(retry=Retry(attempts=2, first=0.05))
async def fails_once() -> None:
    raise RuntimeError("no")


@workflow
async def slow_then_failing() -> None:
    await slow()
    await receive("go")
    try:
        await fails_once()
    except StepError:
        return


async def set_back_before_it_changes_hands(cluster: Cluster) -> None:
    waits: list[int] = []

    def noted(process: Process, event: Event) -> None:
        if event.type is EventType.ATTEMPT_FAILED and event.payload is not None:
            waits.append(decode_attempt(event.payload).retry_at - event.at)

    cluster.monitor.noted = noted
    await asyncio.sleep(1)
    handle = await cluster.client.start(slow_then_failing)
    await asyncio.sleep(0.05)
    cluster.wall.jump(-0.9)  # what worked through it has carried the time on; the others have not
    await asyncio.sleep(0.9)
    for node in cluster.workers:
        if node.engine is not None and node.engine.metrics()["steps"]:
            node.kill()
    await handle.signal("go")
    await handle.result()
    cluster.require("retries_wait", bool(waits) and min(waits) > 0, f"waits {waits}")


def test_a_retry_follows_its_failure_also_where_the_clock_was_set_back_and_another_worker_failed() -> None:
    swarm = Swarm(options=WorkerOptions(lease_seconds=15.0, beat_seconds=3.0, stop_seconds=2.0))
    for seed in seeds(2, 5):
        simulate(set_back_before_it_changes_hands, seed, workflows=[slow_then_failing], swarm=swarm).check()


async def read_while_the_time_led_a_clock_that_was_ahead(cluster: Cluster) -> None:
    await asyncio.sleep(1)
    cluster.wall.jump(20)
    await asyncio.sleep(2)
    cluster.wall.jump(-20)
    await asyncio.sleep(5)  # a beat has kept the lead
    cluster.wall.jump(5)
    told = await cluster.client.store.now()
    cluster.wall.jump(-5)
    cluster.require("it_was_told", cluster.wall.latest() >= told, f"{told} was told, and nobody may carry it on")


def test_a_time_that_the_store_has_told_may_be_carried_on_whatever_the_clock_does() -> None:
    for seed in seeds(2, 5):
        simulate(read_while_the_time_led_a_clock_that_was_ahead, seed, workflows=[nap], swarm=Swarm()).check()


async def an_hour_forward(cluster: Cluster) -> None:
    handles = [await cluster.client.start(nap, 1800.0) for _ in range(5)]
    await asyncio.sleep(1)
    cluster.wall.jump(3600)
    assert [await handle.result() for handle in handles] == ["awake"] * 5


async def a_minute(cluster: Cluster) -> None:
    loop = asyncio.get_running_loop()
    handle = await cluster.client.start(nap, 60.5)
    began = loop.time()
    await handle.result()
    late = loop.time() - began - 60.5
    cluster.require("no_late_timer", late < 0.05, f"the timer of a minute was {late:.3f} s late")


def test_a_timer_of_a_minute_is_no_later_than_one_of_a_second() -> None:
    for seed in seeds(2, 5):
        simulate(a_minute, seed, workflows=[nap], swarm=Swarm()).check()


def test_timers_ring_when_the_clock_jumps_forward() -> None:
    for seed in seeds(2, 5):
        assert simulate(an_hour_forward, seed, workflows=[nap], swarm=Swarm()).check().seconds < 30
