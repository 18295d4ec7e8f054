"""Many processes started at once: the worker of the same engine owns them from the beginning while it keeps up."""

from __future__ import annotations

import asyncio

import pytest

from perdure import limits
from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.futures import OnAnswer
from perdure.kernel.commit import Start
from perdure.kernel.process import Status
from perdure.runtime.committer import Committer
from perdure.runtime.options import WorkerOptions
from perdure.runtime.room import Room
from perdure.store.base import Search
from perdure.testing.faults import Gate
from tests.runtime.conftest import LIMIT, Open, until

gate = asyncio.Event()


@pytest.fixture(autouse=True)
def _a_closed_gate() -> None:
    gate.clear()


@step
async def double(number: int) -> int:
    return 2 * number


@workflow
async def doubling(number: int) -> int:
    return await double(number)


@step
async def passes(number: int) -> int:
    await gate.wait()
    return number


@workflow
async def patient(number: int) -> int:
    return await passes(number)


async def test_the_next_of_many_waits_for_a_place_while_places_become_free(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "START_WAIT_SECONDS", LIMIT)
    monkeypatch.setattr(limits, "START_WAIT_PROCESSES", 1)
    engine, _ = await opened(work=True, workflows=[doubling], options=WorkerOptions(in_flight=40))
    handles = await engine.start_many(doubling, [(number,) for number in range(200)])
    assert await engine.results(handles, LIMIT) == [2 * one for one in range(200)]
    assert engine.metrics()["claims"] == 0, "each had an owner from its beginning"


async def test_many_are_stored_at_once_where_places_do_not_become_free(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[patient], options=WorkerOptions(in_flight=40))
    handles = await engine.start_many(patient, [(number,) for number in range(200)])
    stored = await engine.list(Search(kind=handles[0].kind, statuses=(Status.RUNNING,), limit=500))
    assert len(stored) == 200, "those that found no place are stored, and wait for whoever claims them"
    gate.set()
    assert await engine.results(handles, LIMIT) == list(range(200))
    assert engine.metrics()["claims"] >= 160


async def test_a_full_worker_is_waited_for_while_it_writes_what_others_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "START_WAIT_SECONDS", 1e-6)
    room, asked = Room(), 0

    def at_work() -> bool:
        nonlocal asked
        asked += 1
        if asked == 5:
            room.left(limits.START_WAIT_PROCESSES)
        return True

    assert await room.found(at_work)
    assert asked == 5
    assert not await room.found(lambda: False), "a worker that does nothing gives no place away"
    assert room.wanted == 0


async def test_a_full_worker_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "START_WAIT_SECONDS", 1e-6)
    monkeypatch.setattr(limits, "START_WAIT_BUSY_SECONDS", 1e-4)
    assert not await Room().found(lambda: True)


async def test_where_another_worker_could_run_them_many_do_not_wait_for_this_one(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "START_WAIT_SECONDS", 1e-6)
    monkeypatch.setattr(limits, "START_WAIT_BUSY_SECONDS", 1e9)
    first, store = await opened(work=True, workflows=[doubling], options=WorkerOptions(in_flight=40))
    await opened(work=True, workflows=[doubling])
    assert first.worker is not None
    committer, context = first.worker.scheduler.committer, first.worker.context
    await until(context.offers)
    handed_in: list[Start] = []

    def start(one: Start, answered: OnAnswer) -> None:
        handed_in.append(one)
        Committer.start(committer, one, answered)

    monkeypatch.setattr(committer, "start", start)
    store.before = stuck = Gate("start")  # as long as the first starts are being written, no place becomes free
    many = asyncio.create_task(first.start_many(doubling, [(number,) for number in range(200)]))
    await stuck.reached.wait()
    await until(lambda: len(handed_in) == 200)
    stuck.open.set()
    assert await asyncio.gather(*(one.result(LIMIT) for one in await many)) == [2 * one for one in range(200)]


async def test_a_client_without_a_worker_stores_many_without_a_wait(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "START_WAIT_SECONDS", 1e9)
    client, store = await opened(workflows=[doubling])
    handles = await client.start_many(doubling, [(number,) for number in range(200)])
    assert len(handles) == 200
    assert sum(len(starts) for door, starts in store.calls if door == "start") == 200
