"""A process that is revived again and again and records nothing is stopped, and shown; one that gets on is not."""

from __future__ import annotations

import pytest
from msgspec import json

from perdure import Alert, limits, step, workflow
from perdure.kernel.event import Event, EventType
from perdure.kernel.process import Status
from perdure.kernel.quarantine import revivals
from perdure.kernel.transition import orphaned
from perdure.store.base import Overdue, Search
from tests.runtime.conftest import Open, until, until_row

MINUTE = 60_000_000
ran: list[str] = []


@pytest.fixture(autouse=True)
def _anew() -> None:
    ran.clear()


@step
async def pay() -> str:
    ran.append("pay")
    return "paid"


@workflow
async def order() -> str:
    return await pay()


async def revived(opened: Open, times: int) -> str:
    """A process that so many workers have held for a moment, each of which has fallen silent; its id."""
    client, store = await opened()
    handle = await client.start(order)
    for _ in range(times):
        row = await client.row(handle.id)
        now = await store.now()
        # As the sweep writes it for a worker that was silent, without evidence that it has died.
        commit = orphaned(row, now=now, died=False, worker="silent", idle_at=now)
        [answer] = await store.commit([commit])
        assert answer.verdict.name == "APPLIED"
    return handle.id


async def test_a_process_that_goes_round_in_revivals_is_parked_before_its_code_runs_and_told_of(opened: Open) -> None:
    id = await revived(opened, limits.REVIVAL_LOOP_EVENTS)
    told: list[Alert] = []
    engine, _ = await opened(work=True, workflows=[order], on_alert=told.append)
    row = await until_row(engine, id, lambda row: row.status is Status.BROKEN)
    assert ran == []
    assert json.decode(row.error or b"")["type"] == "RevivalLoop"
    await until(lambda: told)
    assert (told[0].kind, told[0].process_id) == ("broken", id)
    assert not await engine.store.search(Search(overdue=Overdue.UNHOSTED))
    retried = engine.process(id)
    await retried.retry(why="the network is mended")
    assert await retried.result() == "paid", "a retry opens a run without those revivals"


async def test_one_revival_fewer_and_the_process_goes_on(opened: Open) -> None:
    id = await revived(opened, limits.REVIVAL_LOOP_EVENTS - 1)
    engine, _ = await opened(work=True, workflows=[order])
    assert await engine.process(id).result() == "paid"


def history(*events: tuple[EventType, int, bytes]) -> list[Event]:
    """These events, each with its type, the minute of it and its payload."""
    return [
        Event(number, 0, type, minute * MINUTE, payload=payload)
        for number, (type, minute, payload) in enumerate(events, 1)
    ]


def test_only_revivals_at_the_end_that_are_recent_and_had_something_to_record_count() -> None:
    again = [(EventType.REVIVED, minute, b"{}") for minute in range(100, 110)]
    assert revivals(history(*again), 110 * MINUTE) == 10
    assert revivals(history(*again, (EventType.TIMER_FIRED, 111, b"")), 110 * MINUTE) == 0
    assert revivals(history(*again[:4], (EventType.STEP_COMPLETED, 104, b""), *again[5:]), 110 * MINUTE) == 5
    assert revivals(history(*again), 165 * MINUTE) == 5, "what was long ago is no loop"
    waited = (EventType.REVIVED, 110, b'{"waited":true}')
    assert revivals(history(*again, waited), 110 * MINUTE) == 10
    assert revivals([], 110 * MINUTE) == 0


def test_that_a_step_begins_is_no_end_of_a_revival_loop() -> None:
    again = [(EventType.REVIVED, 100, b"{}"), (EventType.ATTEMPT_BEGUN, 100, b"")] * 10
    assert revivals(history(*again), 110 * MINUTE) == 10
