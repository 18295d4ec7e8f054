"""A circuit is advice: lost, damaged, late or of a dead worker, it stops no step for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import limits, step, workflow
from perdure.clock import SECOND
from perdure.errors import StoreUnavailable, Unavailable
from perdure.kernel.breaker import Circuit
from tests.breakers.bank import (
    ALL,
    BANK,
    HOUR,
    MANY,
    calls,
    circuit_when,
    other_work,
    paying,
    paying_quickly,
    trouble,
)
from tests.runtime.conftest import LIMIT, Open, until

gate = asyncio.Event()


@step(breaker=BANK, name="wait_at_the_gate")
async def wait_at_the_gate(number: int) -> int:
    calls[number] += 1
    await gate.wait()
    return number


@workflow
async def waiting_at_the_gate(number: int) -> int:
    return await wait_at_the_gate(number)


@pytest.fixture(autouse=True)
def _shut() -> None:
    """Nobody gets through the gate yet."""
    global gate
    gate = asyncio.Event()


async def test_if_the_row_is_lost_attempts_are_made(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BREAKER_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(limits, "BREAKER_LOOK_SECONDS", 0.01)
    engine, store = await opened(work=True, workflows=ALL)
    handle = await engine.start(paying, 1)
    await until(lambda: engine.metrics()["attempts_barred"] >= 1)
    trouble.clear()
    records = store.records

    async def lost(table: type[Any], changes: Any = ()) -> list[Any]:
        return [] if table is Circuit else await records(table, changes)

    monkeypatch.setattr(store, "records", lost)
    assert await handle.result(LIMIT) == 1


async def test_if_the_store_cannot_be_asked_attempts_are_made(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, store = await opened(work=True, workflows=ALL)
    trouble.clear()
    records = store.records

    async def away(table: type[Any], changes: Any = ()) -> list[Any]:
        if table is Circuit:
            raise StoreUnavailable("the database is away")
        return await records(table, changes)

    monkeypatch.setattr(store, "records", away)
    for number in range(3):
        assert await (await engine.start(paying, number)).result(LIMIT) == number
    assert calls.total() == 3


async def test_a_defect_in_what_was_read_stops_no_step(
    opened: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine, store = await opened(work=True, workflows=ALL)
    trouble.clear()
    records = store.records

    async def garbled(table: type[Any], changes: Any = ()) -> list[Any]:
        return [Circuit("bank", "?", "open", until="later")] if table is Circuit else await records(table, changes)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "records", garbled)
    for number in range(3):
        assert await (await engine.start(paying, number)).result(LIMIT) == number
    assert "please report it" in caplog.text


async def test_the_probe_of_a_worker_that_is_gone_keeps_no_other_from_probing(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BREAKER_LOOK_SECONDS", 0.01)
    engine, store = await opened(work=True, workflows=ALL)
    now = await store.now()
    gone = Circuit("bank", 1, "half-open", now, now + SECOND // 20, opened=1, probes=1, worker="gone")
    await store.records(Circuit, [gone])
    trouble.clear()
    assert await (await engine.start(paying_quickly, 1)).result(LIMIT) == 1
    assert (await circuit_when(engine, lambda circuit: circuit.closed)).reason == "a probe was served"


async def test_of_many_workers_that_ask_one_makes_the_probe(opened: Open) -> None:
    engines = [(await opened(work=True, workflows=[waiting_at_the_gate]))[0] for _ in range(3)]
    now = await engines[0].store.now()
    await engines[0].store.records(Circuit, [Circuit("bank", 1, "open", now - 2, now - 1, opened=1)])
    handles = [await engine.start(waiting_at_the_gate, number) for number, engine in enumerate(engines)]
    await until(lambda: calls.total() >= 1 and sum(one.metrics()["attempts_barred"] for one in engines) >= 2)
    assert calls.total() == 1
    gate.set()
    await handles[next(iter(calls))].result(LIMIT)


async def test_two_workers_that_decide_the_same_at_one_instant_make_one_probe(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [await opened(work=True, workflows=[waiting_at_the_gate]) for _ in range(2)]
    now = await pairs[0][0].store.now()
    await pairs[0][0].store.records(Circuit, [Circuit("bank", 1, "open", now - 2, now - 1, opened=1)])
    both_have_read = asyncio.Barrier(2)
    for engine, store in pairs:
        assert engine.worker is not None
        monkeypatch.setattr(store, "records", once_together(store.records, both_have_read))
        monkeypatch.setattr(engine.worker.time, "now", lambda: now)
    for number, (engine, _) in enumerate(pairs):
        await engine.start(waiting_at_the_gate, number)
    await until(lambda: calls.total() >= 1 and sum(engine.metrics()["attempts_barred"] for engine, _ in pairs) >= 1)
    assert calls.total() == 1
    gate.set()


def once_together(records: Any, both: asyncio.Barrier) -> Any:
    """The method of a store, whose first look waits until the other store has looked too."""
    first = [True]

    async def method(table: type[Any], changes: Any = ()) -> Any:
        found = await records(table, changes)
        if table is Circuit and first:
            first.clear()
            await both.wait()
        return found

    return method


@pytest.mark.parametrize("told", ["soon", float("nan"), float("inf"), -1, True, None, 10**400])
async def test_an_answer_that_tells_what_cannot_be_meant_opens_it_as_one_that_tells_nothing(
    opened: Open, told: Any
) -> None:
    engine, _ = await opened(work=True, workflows=ALL)
    trouble[:] = [Unavailable("busy", retry_after=told)]
    await engine.start(paying, 1)
    await until(lambda: engine.metrics()["attempts_barred"] >= 1)
    [seen] = await engine.breakers.list()
    assert (seen.state, seen.reason) == ("open", "it cannot serve: Unavailable")


async def test_what_a_step_without_a_breaker_does_asks_nothing_of_the_store(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, store = await opened(work=True, workflows=ALL)
    trouble.clear()
    asked = 0
    records = store.records

    async def counted(table: type[Any], changes: Any = ()) -> list[Any]:
        nonlocal asked
        asked += table is Circuit
        return await records(table, changes)

    monkeypatch.setattr(store, "records", counted)
    monkeypatch.setattr(limits, "BREAKER_LOOK_SECONDS", HOUR)
    handles = await engine.start_many(other_work, [(number,) for number in range(MANY)])
    assert [await handle.result(LIMIT) for handle in handles] == list(range(MANY))
    assert asked == 0
    for number in range(MANY):
        assert await (await engine.start(paying, number)).result(LIMIT) == number
    assert asked == 1, "one look, and none for a success"
