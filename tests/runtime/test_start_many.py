"""Many processes started at once: the worker of the same engine owns them from the beginning while it keeps up."""

from __future__ import annotations

import asyncio

import pytest

from perdure import limits
from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.kernel.process import Status
from perdure.runtime.options import WorkerOptions
from perdure.store.base import Search
from tests.runtime.conftest import LIMIT, Open

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
    assert await asyncio.gather(*(handle.result(LIMIT) for handle in handles)) == [2 * one for one in range(200)]
    assert engine.metrics()["claims"] == 0, "each had an owner from its beginning"


async def test_many_are_stored_at_once_where_places_do_not_become_free(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[patient], options=WorkerOptions(in_flight=40))
    handles = await engine.start_many(patient, [(number,) for number in range(200)])
    stored = await engine.list(Search(kind=handles[0].kind, statuses=(Status.RUNNING,), limit=500))
    assert len(stored) == 200, "those that found no place are stored, and wait for whoever claims them"
    gate.set()
    assert await asyncio.gather(*(handle.result(LIMIT) for handle in handles)) == list(range(200))
    assert engine.metrics()["claims"] >= 160


async def test_a_client_without_a_worker_stores_many_without_a_wait(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "START_WAIT_SECONDS", 1e9)
    client, store = await opened(workflows=[doubling])
    handles = await client.start_many(doubling, [(number,) for number in range(200)])
    assert len(handles) == 200
    assert sum(len(starts) for door, starts in store.calls if door == "start") == 200
