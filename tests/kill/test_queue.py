"""SIGKILL and SIGSTOP of workers that serve a queue: every task has one answer, and poison harms no neighbour."""

from __future__ import annotations

import asyncio
import json

import pytest

from perdure.engine import Engine
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status
from perdure.store.base import Search
from tests.kill.harness import LIMIT, Harness, said
from tests.kill.kinship import families_whole
from tests.kill.orchard import PARENTS, bomb, juice, quick_juice
from tests.kill.test_children import END, GO_ON, KILL, SHORT, STOP, hosts, kill_point
from tests.kill.workload import gate
from tests.runtime.conftest import until

pytestmark = [pytest.mark.kill, pytest.mark.timeout(300), pytest.mark.usefixtures("quick_probes")]


def presses(url: str) -> Engine:
    return Engine(url, work=True, workflows=[], queues=["press"])


async def tasks(engine: Engine) -> list[Process]:
    return await engine.store.search(Search(kind="@press"))


async def test_a_task_whose_worker_is_killed_in_the_middle_runs_elsewhere_under_the_same_key(harness: Harness) -> None:
    async with Engine(harness.url, work=True, workflows=PARENTS, queues=[]) as engine:
        handle = await engine.start(juice, "apple")
        child = await harness.start_worker(modules=hosts("PRESSES"))
        await until(harness.effects)
        child.send_signal(KILL)
        await child.wait()
        gate().touch()
        async with presses(harness.url):
            assert await handle.result(LIMIT) == "apple juice"
        assert harness.effects() == {("press-apple", f"{handle.id}/1/press:1"): 2}
        kinds = await families_whole(engine)
        [task], [parent] = kinds["@press"], kinds["juice"]
        assert parent.inbox == 1
        assert task.status is Status.COMPLETED


async def test_the_slots_of_a_killed_worker_come_back_and_the_limit_holds_all_the_while(harness: Harness) -> None:
    async with Engine(harness.url, work=True, workflows=PARENTS, queues=[]) as engine:
        await engine.queues.limit("press", concurrency=2)
        fruits = [f"apple {n}" for n in range(6)]
        handles = [await engine.start(juice, fruit) for fruit in fruits]
        child = await harness.start_worker(modules=hosts("PRESSES"))
        await until(lambda: len(harness.effects()) == 2)
        assert (await engine.queues.list())[0].running == 2
        child.send_signal(KILL)
        await child.wait()
        gate().touch()
        async with presses(harness.url), asyncio.timeout(LIMIT):
            results = asyncio.gather(*(handle.result() for handle in handles))
            while not results.done():
                assert (await engine.queues.list())[0].running <= 2
                await asyncio.sleep(0)
            assert await results == [f"{fruit} juice" for fruit in fruits]
        assert sorted(harness.effects().values()) == [1, 1, 1, 1, 2, 2]
        assert (await engine.queues.list())[0].running == 0


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_worker_killed_at_the_commit_that_ends_a_task_loses_nothing(harness: Harness, side: str) -> None:
    async with Engine(harness.url, work=True, workflows=PARENTS, queues=[]) as engine:
        handle = await engine.start(quick_juice, 7)
        child = await harness.start_worker(modules=hosts("PRESSES"), kill_point=kill_point(1, side))
        assert await asyncio.wait_for(child.wait(), LIMIT) == -KILL
        async with presses(harness.url):
            assert await handle.result(LIMIT) == 7
        [times] = harness.effects().values()
        assert times == (2 if side == "before" else 1)
        await families_whole(engine)


async def test_the_late_answer_of_a_stopped_worker_is_refused_and_its_parent_has_one_answer(harness: Harness) -> None:
    async with Engine(harness.url, work=True, workflows=PARENTS, queues=[]) as engine:
        handle = await engine.start(quick_juice, 7)
        child = await harness.start_worker(
            modules=hosts("PRESSES"), options=SHORT, kill_point=kill_point(1, "before", STOP)
        )
        await until(harness.effects)
        async with presses(harness.url):
            assert await handle.result(LIMIT) == 7
            assert set(harness.effects().values()) == {2}, "one effect under one key, tried twice"
            before = await families_whole(engine)
            child.send_signal(GO_ON)
            child.send_signal(END)
            assert json.loads(await said(child, "metrics"))["commits_refused"] == 1
            assert await families_whole(engine) == before
        [parent] = before["quick_juice"]
        assert parent.inbox == 1


@pytest.mark.long
async def test_a_task_that_kills_its_worker_is_parked_and_its_neighbours_are_unharmed(harness: Harness) -> None:
    async with Engine(harness.url, work=True, workflows=PARENTS, queues=[]) as engine:
        deadly = await engine.start(bomb)
        healthy = await engine.start_many(quick_juice, [(n,) for n in range(20)])
        deaths = 0
        async with asyncio.timeout(LIMIT):
            while not (poison := [row for row in await tasks(engine) if row.awaiting == "step explode"]):
                await asyncio.sleep(0.01)
            id = id_text(poison[0].id)
            while (await engine.row(id)).status is Status.RUNNING:
                child = await harness.start_worker(modules=hosts("PRESSES"))
                while child.returncode is None and (await engine.row(id)).status is Status.RUNNING:
                    await asyncio.sleep(0.05)
                deaths += child.returncode is not None
        results = await asyncio.gather(*(handle.result(LIMIT) for handle in healthy))
        assert results == list(range(20))
        row = await engine.row(id)
        assert row.status is Status.BROKEN
        assert deaths == 2, "twice with neighbours"
        died = harness.ledger.read_text().count("/explode:1 ")
        assert 5 <= died <= 5 + (21).bit_length() - 1, "twice with neighbours, once for each halving, three times alone"
        assert (row.deaths, row.alone_deaths) == (died - 3, 3)
        assert (await engine.row(deadly.id)).status is Status.RUNNING, "its parent waits for whoever mends it"
        assert "died" in (await engine.process(id).status()).waiting
        await families_whole(engine)
