"""Queues with limits: how many workers together run how much of them, whose turn it is, and what a person blocks."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from perdure import limits
from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.errors import DefinitionError, InvalidInput, InvalidKey
from perdure.kernel.queue import Queue
from perdure.kernel.retry import Retry
from perdure.store.base import Search
from tests.runtime.conftest import LIMIT, Open, until

done: list[Any] = []
running: dict[str, int] = {}
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()
    running.clear()
    gates.clear()


@step(queue="bank", retry=Retry.NONE)
async def settle(name: str) -> str:
    running[name] = 1
    done.append(sum(running.values()))
    await gates["go"].wait()
    del running[name]
    return name


@workflow
async def settles(names: list[str]) -> list[str]:
    return await asyncio.gather(*map(settle, names))


asked: list[int] = []


@step(queue="bank", retry=Retry.NONE)
async def in_order(number: int) -> None:
    asked.append(number)


@workflow
async def asks_for_many(number: int) -> None:
    await asyncio.gather(*map(in_order, range(number)))


async def test_steps_of_one_turn_begin_in_the_order_in_which_they_were_asked_for(opened: Open) -> None:
    asked.clear()
    engine, _ = await opened(work=True, workflows=[asks_for_many], queues=["bank"])
    await engine.queues.limit("bank", concurrency=1)
    await (await engine.start(asks_for_many, 40)).result(LIMIT)
    assert asked == list(range(40))


async def test_all_workers_together_run_no_more_of_a_queue_than_its_limit(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[settles], queues=["bank"])
    for _ in range(2):
        await opened(work=True, workflows=[], queues=["bank"])
    await engine.queues.limit("bank", concurrency=4)
    names = [f"customer {n}" for n in range(20)]
    handle = await engine.start(settles, names)
    await until(lambda: len(running) == 4)
    [view] = await engine.queues.list()
    assert (view.name, view.running, view.full, view.concurrency) == ("bank", 4, 4, 4)
    gates["go"].set()
    assert await handle.result(LIMIT) == names
    assert max(done) == 4


@workflow
async def settles_at(labels: list[str]) -> list[str]:
    return await asyncio.gather(*(settle.options(label=label)(f"{n}") for n, label in enumerate(labels)))


async def test_whoever_waits_for_a_slot_hears_at_once_that_another_worker_has_freed_one(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "POLL_SECONDS", 3600.0)
    engine, _ = await opened(work=True, workflows=[settles_at], queues=[])
    workers = [await opened(work=True, workflows=[], queues=["bank"], labels=[label]) for label in ("left", "right")]
    await engine.queues.limit("bank", concurrency=1)
    gates["go"].set()
    handle = await engine.start(settles_at, ["left", "right"] * 10)
    assert await handle.result(LIMIT) == [str(n) for n in range(20)]
    assert max(done) == 1
    assert [worker.metrics()["steps"] for worker, _ in workers] == [10, 10]


@step(queue="bank", retry=Retry.NONE)
async def serve_tenant(tenant: str) -> str:
    done.append(tenant)
    return tenant


@workflow
async def serves(tenants: list[str]) -> None:
    await asyncio.gather(*(serve_tenant.options(share=tenant)(tenant) for tenant in tenants))


async def test_the_tasks_of_a_loud_tenant_do_not_keep_those_of_others_waiting(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[serves], queues=[])
    await engine.queues.limit("bank", concurrency=2)
    handle = await engine.start(serves, ["loud"] * 40 + ["quiet"] * 3)
    async with asyncio.timeout(LIMIT):
        while (await engine.queues.list())[0].waiting < 43:
            await asyncio.sleep(0)
    await opened(work=True, workflows=[], queues=["bank"])
    await handle.result(LIMIT)
    assert set(done[:6]) == {"loud", "quiet"} and done[:8].count("quiet") == 3


@workflow
async def settles_dearly(costs: list[int]) -> list[str]:
    return await asyncio.gather(*(settle.options(cost=cost)(f"{n}") for n, cost in enumerate(costs)))


async def test_costs_count_towards_the_limit(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[settles_dearly], queues=["bank"])
    await engine.queues.limit("bank", concurrency=5)
    handle = await engine.start(settles_dearly, [3, 3, 9, 4])
    await until(lambda: len(running) == 1)
    [view] = await engine.queues.list()
    assert (view.running, view.waiting) == (1, 3)
    gates["go"].set()
    assert await handle.result(LIMIT) == ["0", "1", "2", "3"]
    assert max(done) == 1


async def test_of_a_blocked_queue_nothing_begins_until_it_is_unblocked(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[settles], queues=["bank"])
    blocked = await engine.queues.block("bank", who="ana", why="the bank is closed")
    assert (blocked.blocked_by, blocked.blocked_why, blocked.blocked_at is not None) == (
        "ana", "the bank is closed", True,
    )  # fmt: skip
    gates["go"].set()
    handle = await engine.start(settles, ["a"])
    async with asyncio.timeout(LIMIT):
        while not (tasks := await engine.list(Search(kind="@bank"))) or tasks[0].mover != "person":
            await asyncio.sleep(0)
    assert tasks[0].waiting == "queue bank is blocked by ana: the bank is closed"
    again = await engine.queues.block("bank", who="bob", why="too")
    assert (again.blocked_by, again.who, again.origin) == ("ana", "bob", "client")
    assert done == []
    freed = await engine.queues.unblock("bank", who="ana")
    assert (freed.blocked_at, freed.blocked_by, freed.who) == (None, "", "ana")
    assert await handle.result(LIMIT) == ["a"]


async def test_a_waiting_task_says_that_its_queue_is_full(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[settles], queues=["bank"])
    await engine.queues.limit("bank", concurrency=1)
    handle = await engine.start(settles, ["a", "b"])
    await until(lambda: len(running) == 1)
    async with asyncio.timeout(LIMIT):
        while "queue bank is full (1 of 1)" not in [task.waiting for task in await engine.list(Search(kind="@bank"))]:
            await asyncio.sleep(0)
    gates["go"].set()
    await handle.result(LIMIT)


async def test_by_its_rate_a_queue_begins_its_tasks_evenly(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[settles], queues=["bank"])
    await engine.queues.limit("bank", rate=5, per=0.5)
    gates["go"].set()
    begun = asyncio.get_running_loop().time()
    await (await engine.start(settles, [str(n) for n in range(10)])).result(LIMIT)
    assert asyncio.get_running_loop().time() - begun >= 0.5


async def test_what_is_not_given_is_taken_away_from_the_limits(opened: Open) -> None:
    engine, _ = await opened()
    await engine.queues.limit("bank", concurrency=5, rate=3, per=60, share_concurrency=2, who="ana", why="cheaper")
    view = await engine.queues.limit("bank", rate=4)
    assert (view.concurrency, view.rate, view.per, view.share_concurrency) == (None, 4, 1.0, None)


async def test_two_people_at_once_do_not_undo_what_the_other_has_set(opened: Open) -> None:
    engine, store = await opened()
    await asyncio.gather(*(engine.queues.block(f"queue {n % 3}", who=f"{n}") for n in range(9)))
    await asyncio.gather(engine.queues.limit("queue 0", concurrency=7), engine.queues.unblock("queue 0"))
    views = await engine.queues.list()
    assert [view.name for view in views] == ["queue 0", "queue 1", "queue 2"]
    assert (views[0].concurrency, views[0].blocked_at) == (7, None)
    assert [queue.version for queue in await store.records(Queue)] == [5, 3, 3]


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "2", 10**10])
async def test_a_limit_that_makes_no_sense_is_refused(opened: Open, wrong: Any) -> None:
    engine, _ = await opened()
    for name in ("concurrency", "rate", "share_concurrency"):
        with pytest.raises(InvalidInput, match="whole number from 1"):
            await engine.queues.limit("bank", **{name: wrong})
    with pytest.raises(InvalidInput):
        await engine.queues.limit("bank", rate=1, per=-1)
    with pytest.raises(InvalidKey):
        await engine.queues.block("")


@pytest.mark.parametrize("wrong", [{"cost": 0}, {"cost": 1.5}, {"cost": True}, {"share": ""}, {"share": 7}])
def test_a_share_or_cost_that_makes_no_sense_is_refused_when_it_is_set(wrong: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        settle.options(**wrong)


@step
async def local() -> None: ...


def test_a_share_or_cost_without_a_queue_is_refused() -> None:
    with pytest.raises(DefinitionError, match="share=, cost=: only a queue's"):
        local.options(share="a", cost=2)
    with pytest.raises(DefinitionError, match="cost="):
        step(cost=2)(local.function)


@workflow
async def settles_what_it_can(names: list[str]) -> list[str]:
    settled = await asyncio.gather(*map(settle, names), return_exceptions=True)
    return [name for name in settled if isinstance(name, str)]


async def test_a_killed_tasks_slot_is_free_again(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[settles_what_it_can], queues=["bank"])
    await engine.queues.limit("bank", concurrency=1)
    handle = await engine.start(settles_what_it_can, ["a", "b"])
    await until(lambda: "a" in running or "b" in running)
    [held] = [task for task in await engine.list(Search(kind="@bank")) if task.owner is not None]
    running.clear()
    await engine.process(held.id).terminate()
    await until(lambda: len(running) == 1)
    [other] = running
    gates["go"].set()
    assert await handle.result(LIMIT) == [other]
