"""A worker that serves several queues with limits of its own holds no more than it has room for, and serves all."""

from __future__ import annotations

import asyncio

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.kernel.retry import Retry
from perdure.runtime.options import WorkerOptions
from perdure.store.base import Search
from tests.runtime.conftest import LIMIT, Open, until_row

QUEUES = ("axes", "bells", "cups")
ROOM = 4
go_on: asyncio.Event


@pytest.fixture(autouse=True)
def _fresh() -> None:
    global go_on
    go_on = asyncio.Event()


async def used(what: str) -> str:
    await go_on.wait()
    return what


STEPS = [step(name=f"use {queue}", queue=queue, retry=Retry.NONE)(used) for queue in QUEUES]


@workflow
async def uses(number: int) -> int:
    return len(await asyncio.gather(*(one(str(n)) for one in STEPS for n in range(number))))


async def test_a_worker_with_queues_of_limited_size_claims_no_more_than_it_has_room_for(opened: Open) -> None:
    options = WorkerOptions(in_flight=ROOM)
    engine, _ = await opened(work=True, workflows=[], queues=dict.fromkeys(QUEUES, ROOM), options=options)
    assert engine.worker is not None
    await engine.worker.claimer.loop.stop()
    parent, _ = await opened(work=True, workflows=[uses])
    handle = await parent.start(uses, ROOM)
    await until_row(parent, handle.id, lambda row: row.owner is None and row.awaiting)
    assert len(await parent.store.search(Search(tasks=True))) == 1 + ROOM * len(QUEUES)
    for _ in range(2):
        await engine.worker.claimer.look()
        assert engine.metrics()["in_hand"] == ROOM
    go_on.set()
    engine.worker.claimer.loop.start()
    assert await handle.result(LIMIT) == ROOM * len(QUEUES)


async def test_each_queue_of_a_worker_has_its_turn_to_be_claimed_first(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[uses], queues=dict.fromkeys(QUEUES, ROOM))
    assert engine.worker is not None
    await engine.worker.claimer.loop.stop()
    firsts = set()
    for _ in range(1 + len(QUEUES)):
        store.calls.clear()
        await engine.worker.claimer.look()
        firsts.add(next(claim.hosted for name, claim in store.calls if name == "claim"))
    assert len(firsts) == 1 + len(QUEUES)
