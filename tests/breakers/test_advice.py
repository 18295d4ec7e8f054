"""A circuit is advice: lost, damaged, late or of a dead worker, it stops no step for ever."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import limits
from perdure.clock import SECOND
from perdure.errors import StoreUnavailable
from perdure.kernel.breaker import Circuit
from tests.breakers.bank import (
    ALL,
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
    assert await (await engine.start(paying, 1)).result(LIMIT) == 1
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


async def test_of_many_workers_that_ask_at_once_one_makes_the_probe(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = [(await opened(work=True, workflows=ALL))[0] for _ in range(3)]
    now = await engines[0].store.now()
    await engines[0].store.records(Circuit, [Circuit("bank", 1, "open", now - 2, now - 1, opened=1)])
    for number, engine in enumerate(engines):
        assert engine.worker is not None
        await engine.start(paying, number)
    await until(lambda: calls.total() >= 1 and sum(one.metrics()["attempts_barred"] for one in engines) >= 2)
    assert calls.total() == 1


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
