"""SIGKILL at every commit point of a three-step process, before and after, on both stores: somebody else goes on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from perdure.engine import Engine
from perdure.kernel.process import Status
from tests.kill.harness import LIMIT, Harness, laws_hold, points, said
from tests.kill.workload import five_pauses, gate, held, poison, three_steps
from tests.runtime.conftest import until

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300)]
HOSTED = [three_steps, five_pauses, held, poison]
KILL = 9
SIDES = ("before", "after")
STARTS = [("start", 1, side) for side in SIDES]
COMMITS = [("commit", call, side) for call in (1, 2, 3) for side in SIDES]
POINTS = points([*STARTS, *COMMITS], *STARTS, ("commit", 2, "before"), ("commit", 2, "after"), ("commit", 3, "after"))


async def killed_at(harness: Harness, door: str, call: int, side: str) -> None:
    child = await harness.start_worker(
        start="three_steps", key="k", kill_point={"door": door, "call": call, "side": side, "signal": KILL}
    )
    assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL


@pytest.mark.parametrize(("door", "call", "side"), POINTS)
async def test_a_worker_killed_at_a_commit_point_loses_nothing(
    harness: Harness, door: str, call: int, side: str
) -> None:
    await killed_at(harness, door, call, side)
    async with Engine(harness.url, work=True, workflows=HOSTED) as survivor:
        # The client asks again with the same key: whatever became of the first start, there is one process.
        handle = await survivor.start(three_steps.options(key="k"))
        assert handle.created == ((door, side) == ("start", "before"))
        assert await handle.result(LIMIT) == 6
        rows = await laws_hold(survivor)
        assert [row.status for row in rows] == [Status.COMPLETED]
        effects = harness.effects()
        assert {what for what, _ in effects} == {"mark1", "mark2", "mark3"}
        assert len(effects) == 3, "each step has one idempotency key, whoever runs it"
        assert all(times <= 2 for times in effects.values()), "only the step in flight may run again"
        assert sum(times == 2 for times in effects.values()) <= 1


@pytest.mark.parametrize("side", SIDES)
async def test_a_worker_killed_at_its_claim_loses_nothing(harness: Harness, side: str) -> None:
    async with Engine(harness.url, migrate=True) as client:
        handle = await client.start(three_steps)
        child = await harness.start_worker(kill_point={"door": "claim", "call": 1, "side": side, "signal": KILL})
        assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
        async with Engine(harness.url, work=True, workflows=HOSTED) as survivor:
            assert await survivor.process(handle.id).result(timeout=LIMIT) == 6
            await laws_hold(survivor)
        assert set(harness.effects().values()) == {1}


@pytest.mark.parametrize("call", points([1, 2, 3], 1, 3))
async def test_a_worker_stopped_past_its_lease_hears_that_its_late_answer_is_refused(
    harness: Harness, call: int
) -> None:
    options = {"lease_seconds": 1.2, "beat_seconds": 0.2}
    kill_point = {"door": "commit", "call": call, "side": "before", "signal": 19}
    child = await harness.start_worker(start="three_steps", options=options, kill_point=kill_point, timeout=LIMIT)
    id = await said(child, "started")
    async with Engine(harness.url, work=True, workflows=HOSTED) as survivor:
        assert await survivor.process(id).result(timeout=LIMIT) == 6
        before = (await survivor.row(id), await survivor.process(id).history())
        child.send_signal(18)
        assert await said(child, "result") == "6"
        metrics: dict[str, Any] = json.loads(await said(child, "metrics"))
        assert metrics["commits_refused"] == 1, "the late answer reached the store and was refused"
        assert (await survivor.row(id), await survivor.process(id).history()) == before
        await laws_hold(survivor)


async def test_two_supervisors_count_each_death_once(harness: Harness) -> None:
    child = await harness.start_worker(options={"in_flight": 100})
    await said(child, "ready")
    async with Engine(harness.url, migrate=True) as client:
        handles = await client.start_many(held, [(n,) for n in range(40)])
        async with asyncio.timeout(LIMIT):
            while len(harness.effects()) < 40:
                await asyncio.sleep(0.01)
        child.kill()
        await child.wait()
        gate().touch()
        async with (
            Engine(harness.url, work=True, workflows=HOSTED) as one,
            Engine(harness.url, work=True, workflows=HOSTED) as two,
        ):
            results = await asyncio.gather(*(client.process(handle.id).result(timeout=LIMIT) for handle in handles))
            assert results == [2 * n for n in range(40)]

            def deaths() -> float:
                return sum(engine.metrics().get("workers_dead", 0) for engine in (one, two))

            await until(deaths)  # a sweep counts what it has found when it is done
            assert deaths() == 1, "one supervisor found the death, the other lost the race"
            for handle in handles:
                names = [event.type.name for event in await client.process(handle.id).history()]
                assert names.count("REVIVED") == 1
            await laws_hold(one)


async def test_poison_among_healthy_processes_is_parked_after_few_deaths(harness: Harness) -> None:
    async with Engine(harness.url, migrate=True) as client:
        handle = await client.start(poison)
        healthy = await client.start_many(five_pauses, [(n,) for n in range(30)])
        deaths = 0
        async with asyncio.timeout(LIMIT):
            while (await client.row(handle.id)).status is Status.RUNNING:
                child = await harness.start_worker()
                # A worker dies with the poison while it has neighbours; alone, only a child of it dies.
                while child.returncode is None and (await client.row(handle.id)).status is Status.RUNNING:
                    await asyncio.sleep(0.05)
                if child.returncode is not None:
                    deaths += 1
        await asyncio.gather(*(client.process(one.id).result(timeout=LIMIT) for one in healthy))
        row = await client.row(handle.id)
        assert row.status is Status.BROKEN
        assert deaths == 2, "twice with neighbours"
        died = harness.ledger.read_text().count("deadly:1")
        assert 5 <= died <= 5 + (31).bit_length() - 1, "twice with neighbours, once for each halving, three times alone"
        assert (row.deaths, row.alone_deaths) == (died - 3, 3)
        assert "died" in (await client.process(handle.id).status()).waiting
