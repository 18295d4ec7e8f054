"""The life of a process behind PgBouncer in transaction mode: no LISTEN and no session locks, but polls and beats."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import receive, workflow
from perdure.engine import Engine
from perdure.errors import KeyConflict, ProcessCancelled, ProcessFailed
from perdure.kernel.message import SendVerdict
from perdure.kernel.process import Status
from perdure.kernel.retry import Retry
from perdure.kernel.soundness import unsound
from perdure.runtime.options import WorkerOptions
from perdure.store.base import Search
from perdure.testing.faults import Outage
from tests.runtime.conftest import LIMIT, Open, engines_on, until, until_row

done: list[Any] = []
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()
    gates.clear()


@pytest.fixture
async def opened(pooled_url: str) -> AsyncIterator[Open]:
    """Opens engines behind the pooler."""
    async with engines_on(pooled_url) as open:
        yield open


async def laws_hold(engine: Engine) -> None:
    """Check every record there is."""
    now = await engine.store.now()
    for row in await engine.store.search(Search(limit=1000)):
        events = await engine.store.history(row.id, row.run, limit=row.events or 1)
        messages = await engine.store.messages([(row.id, 0)])
        assert unsound(row, events, messages, now) == []


@step(retry=Retry(attempts=3, first=0.01, jitter=0.0))
async def charge(order: str, fails: int = 0) -> str:
    done.append((order, attempt().idempotency_key))
    if attempt().number <= fails:
        raise ConnectionError("again")
    return f"receipt {order}"


@step
def pack(order: str) -> str:
    return f"parcel {order}"


@step(retry=Retry.NONE)
async def gated(name: str) -> str:
    done.append(name)
    await gates[name].wait()
    return name


@workflow
async def order(order: str, fails: int = 0) -> str:
    receipt = await charge(order, fails)
    await asyncio.sleep(0.01)
    parcel, mail = await asyncio.gather(pack(order), charge("mail"))
    return f"{receipt}, {parcel}, {mail}"


@workflow
async def one_gate(name: str) -> str:
    return await gated(name)


@workflow
async def listening(signals: int) -> list[int]:
    return [await receive("number", int, timeout=600) for _ in range(signals)]


async def test_a_process_lives_its_whole_life_behind_a_pooler(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[order])
    handle = await engine.start(order.options(key="A"), "A", 2)
    assert await handle.result(LIMIT) == "receipt A, parcel A, receipt mail"
    assert len({key for name, key in done if name == "A"}) == 1
    again = await engine.start(order.options(key="A"), "A", 2)
    assert (again.created, again.id) == (False, handle.id)
    with pytest.raises(KeyConflict):
        await engine.start(order.options(key="A"), "A", 1)
    await laws_hold(engine)


async def test_many_processes_are_started_by_a_client_and_run_by_two_workers(opened: Open) -> None:
    client, _ = await opened()
    one, _ = await opened(work=True, workflows=[order])
    two, _ = await opened(work=True, workflows=[order])
    handles = await client.start_many(order, [(f"B-{number}",) for number in range(100)])
    results = await asyncio.gather(*(handle.result(LIMIT) for handle in handles))
    assert results == [f"receipt B-{number}, parcel B-{number}, receipt mail" for number in range(100)]
    assert one.metrics().get("claims", 0) + two.metrics().get("claims", 0) >= 100
    assert len(done) == 200, "each step ran once"
    await laws_hold(client)


async def test_signals_arrive_in_order_although_nobody_is_notified(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[listening])
    client, _ = await opened()
    handle = await engine.start(listening, 30)
    await until_row(client, handle.id, lambda row: row.owner is None)
    for number in range(30):
        sender = client if number % 10 == 0 else engine
        assert await sender.process(handle.id).signal("number", number, key=f"k{number}") is SendVerdict.DELIVERED
        assert await sender.process(handle.id).signal("number", -1, key=f"k{number}") is SendVerdict.DUPLICATE
    assert await client.process(handle.id).result(timeout=LIMIT) == list(range(30))
    await laws_hold(client)


async def test_cancel_terminate_and_deadline_reach_a_process_behind_a_pooler(opened: Open) -> None:
    options = WorkerOptions(lease_seconds=1.5, beat_seconds=0.2)
    engine, _ = await opened(work=True, workflows=[listening, one_gate], options=options)
    client, _ = await opened()
    asked, forced = await engine.start(listening, 1), await engine.start(one_gate, "x")
    late = await engine.start(listening.options(deadline=0.2), 1)
    await client.process(asked.id).cancel(who="anna")
    await client.process(forced.id).terminate(who="anna")
    for handle, error in ((asked, ProcessCancelled), (forced, ProcessCancelled), (late, ProcessFailed)):
        with pytest.raises(error):
            await handle.result(LIMIT)
    await until(lambda: not engine.metrics()["in_hand"])
    await laws_hold(client)


async def test_rule_12_a_dead_worker_is_found_by_its_missing_beats_and_makes_no_suspect(opened: Open) -> None:
    """The lock of a session means nothing behind a pooler: the worker says so, and only its beats are looked at."""
    first, store = await opened(
        work=True, workflows=[one_gate], options=WorkerOptions(lease_seconds=1.0, beat_seconds=0.2)
    )
    handle = await first.start(one_gate, "x")
    await until(lambda: done == ["x"])
    assert [worker.locked for worker in await store.workers()] == [False]
    outage = Outage().upon(store)
    outage.away = True  # for everybody else it is dead from now on
    second, _ = await opened(work=True, workflows=[one_gate])
    await until(lambda: len(done) == 2)
    gates["x"].set()
    assert await second.process(handle.id).result(timeout=LIMIT) == "x"
    # A sweep counts what it has found when it is done.
    await until(lambda: second.metrics().get("workers_silent", 0) + second.metrics().get("takeovers", 0))
    assert second.metrics().get("workers_dead", 0) == 0
    assert (await second.row(handle.id)).deaths == 0
    outage.away = False
    await laws_hold(second)


async def test_the_late_answer_of_a_worker_that_was_cut_off_is_refused(opened: Open) -> None:
    """Its step has returned within its lease, but the commit reaches the store long after: no step goes on later."""
    first, store = await opened(
        work=True, workflows=[one_gate], options=WorkerOptions(lease_seconds=2.0, beat_seconds=0.2)
    )
    handle = await first.start(one_gate, "x")
    await until(lambda: done == ["x"])
    assert first.worker is not None
    outage = Outage().upon(store)
    outage.away = True
    gates["x"].set()
    await until(lambda: first.metrics()["commits_resent"])
    heartbeat, claimer = first.worker.heartbeat, first.worker.claimer
    for loop in (heartbeat.guard, heartbeat.loop, claimer.loop):
        await loop.stop()  # it does not know that its lease is over, nor does an answer that was on its way tell it
    second, _ = await opened(work=True, workflows=[one_gate])
    await until(lambda: len(done) == 2)
    assert await second.process(handle.id).result(timeout=LIMIT) == "x"
    before = await second.row(handle.id), await second.process(handle.id).history()
    outage.away = False
    await until(lambda: first.metrics().get("commits_refused"))
    assert (await second.row(handle.id), await second.process(handle.id).history()) == before
    await laws_hold(second)


async def test_rule_05_a_commit_with_an_unknown_outcome_counts_once_behind_a_pooler(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[order])
    outage = Outage("start", "commit", after=True).upon(store)
    outage.away = True
    starting = asyncio.create_task(engine.start(order, "A"))
    await until(lambda: outage.failed >= 2)
    outage.away = False
    handle = await starting
    outage.away = True
    await until(lambda: outage.failed >= 4)
    outage.away = False
    assert await handle.result(LIMIT) == "receipt A, parcel A, receipt mail"
    assert sorted(name for name, _ in done) == ["A", "mail"]
    await laws_hold(engine)


async def test_a_worker_behind_a_pooler_hands_back_what_it_holds(opened: Open) -> None:
    first, _ = await opened(work=True, workflows=[one_gate])
    handle = await first.start(one_gate, "x")
    await until(lambda: done == ["x"])
    await first.close(0.01)
    second, _ = await opened(work=True, workflows=[one_gate])
    gates["x"].set()
    assert await second.process(handle.id).result(timeout=LIMIT) == "x"
    row = await second.row(handle.id)
    assert (row.status, row.deaths) == (Status.COMPLETED, 0)
    assert second.metrics().get("takeovers", 0) == 0
