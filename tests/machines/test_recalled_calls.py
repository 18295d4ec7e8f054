"""Calls to a machine that was let go and rests in the cache: it is claimed for the call, which is not sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import Engine, Handle, WorkerOptions, step, workflow
from perdure.kernel.claim import Claim
from perdure.testing.faults import FaultyStore, Gate, Outage
from tests.machines.account import Account, gates
from tests.machines.test_brought_calls import clerk
from tests.machines.test_often_called import Alarm
from tests.runtime.conftest import LIMIT, Open, until, until_row


async def resting(engine: Engine) -> Handle[Any]:
    """An account of 1 cent that this engine's worker has let go, and has in memory."""
    ann = await engine.start(Account.opened, "Ann", 1)
    await until_row(engine, ann.id, lambda row: row.owner is None and row.events > 0)
    await until(lambda: cached(engine) >= 1)
    return ann


def cached(engine: Engine) -> int:
    assert engine.worker is not None
    return len(engine.worker.scheduler.cache)


def of_what_rests(claims: Claim) -> bool:
    return claims.resting


def doors(store: FaultyStore) -> list[str]:
    """What the store was asked for a call since it was last cleared."""
    return [name for name, asked in store.calls if name in ("send", "commit") or (name == "claim" and asked.resting)]


def turned_away(engine: Engine) -> float:
    return engine.metrics()["calls_turned_away"]


async def called(engine: Engine, ann: Handle[Any], cents: int) -> int:
    balance: int = await asyncio.wait_for(engine.process(ann.id).call(Account.deposit, cents), LIMIT)
    return balance


async def test_a_call_to_a_machine_at_rest_is_a_claim_and_a_commit_and_nothing_is_sent(opened: Open) -> None:
    engine, store = await opened(work=True)
    ann = await resting(engine)
    misses = engine.metrics()["cache_misses"]
    store.calls.clear()
    assert await called(engine, ann, 5) == 6
    assert doors(store)[:2] == ["claim", "commit"]
    assert "send" not in doors(store)
    [message] = await engine.store.messages([(ann.id_bytes, 0)])
    assert (message.number, message.name, message.payload) == (1, "deposit", b"[5]")
    await until_row(engine, ann.id, lambda row: row.owner is None and (row.inbox, row.seen) == (1, 1))
    assert engine.metrics()["cache_misses"] == misses
    assert turned_away(engine) == 0


async def test_a_message_of_others_that_came_first_is_heard_first(opened: Open) -> None:
    engine, store = await opened(work=True)
    other, _ = await opened()
    ann = await resting(engine)
    claimed = store.before = Gate("claim", of_what_rests)
    near = asyncio.create_task(called(engine, ann, 10))
    await asyncio.wait_for(claimed.reached.wait(), LIMIT)
    afar = asyncio.create_task(called(other, ann, 1))
    await until_row(other, ann.id, lambda row: row.inbox == 1)
    claimed.open.set()
    assert await asyncio.gather(afar, near) == [2, 12]
    assert await engine.process(ann.id).call(Account.history) == ["+1", "+10"]


async def test_a_machine_that_another_worker_has_by_now_is_evicted_here_and_called_there(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[Account])
    ann = await resting(engine)
    there, _ = await opened(work=True, workflows=[Account])
    afar = asyncio.create_task(there.process(ann.id).call(Account.slow, "afar"))
    claimed = store.before = Gate("claim")  # so it is the other one that claims it
    await until_row(there, ann.id, lambda row: row.owner is not None)
    claimed.open.set()
    store.calls.clear()
    near = asyncio.create_task(called(engine, ann, 10))
    await until_row(there, ann.id, lambda row: row.inbox == 2)
    assert cached(engine) == 0
    more = asyncio.create_task(called(engine, ann, 10))
    await until_row(there, ann.id, lambda row: row.inbox == 3)
    gates["afar"].set()
    assert await asyncio.wait_for(asyncio.gather(near, more), LIMIT) == [11, 21]
    assert await asyncio.wait_for(afar, LIMIT) == "afar"
    assert [claim.resting for name, claim in store.calls if name == "claim" and claim.resting] == [True]


@pytest.mark.parametrize("lost", [False, True])
async def test_a_claim_that_fails_leaves_the_call_to_the_store(opened: Open, lost: bool) -> None:
    engine, store = await opened(work=True)
    ann = await resting(engine)
    outage = Outage("claim", after=lost).upon(store)
    outage.away = True
    asked = asyncio.create_task(called(engine, ann, 1))
    await until(lambda: outage.failed)
    outage.away = False
    assert await asyncio.wait_for(asked, LIMIT) == 2
    assert await engine.process(ann.id).call(Account.history) == ["+1"]


async def test_a_machine_that_is_evicted_before_its_claim_is_sent_the_call(opened: Open) -> None:
    engine, store = await opened(work=True)
    ann = await resting(engine)
    store.calls.clear()
    asked = asyncio.create_task(ann.call(Account.deposit, 1))
    await asyncio.sleep(0)  # its claim comes next
    assert engine.worker is not None
    engine.worker.scheduler.cache.evict(ann.id_bytes)
    assert await asyncio.wait_for(asked, LIMIT) == 2
    assert "send" in doors(store)


async def test_calls_that_come_together_are_answered_in_their_order(opened: Open) -> None:
    engine, _ = await opened(work=True)
    accounts = [await resting(engine) for _ in range(10)]
    asked = [called(engine, ann, cents) for cents in (1, 10, 100) for ann in accounts]
    assert await asyncio.gather(*asked) == [2] * 10 + [12] * 10 + [112] * 10
    assert turned_away(engine) == 0


async def test_a_call_under_a_key_is_made_once(opened: Open) -> None:
    engine, _ = await opened(work=True)
    ann = await resting(engine)
    once = Account.deposit.options(key="once")
    assert await ann.call(once, 1) == 2
    await until_row(engine, ann.id, lambda row: row.owner is None)
    assert await asyncio.wait_for(ann.call(once, 1), LIMIT) == 2
    assert await ann.call(Account.history) == ["+1"]


async def test_a_worker_without_room_sends_the_call(opened: Open) -> None:
    engine, store = await opened(work=True, workflows=[Account, busy], options=WorkerOptions(in_flight=1))
    ann = await resting(engine)
    hog = await engine.start(busy)
    await until_row(engine, hog.id, lambda row: row.owner is not None)
    store.calls.clear()
    asked = asyncio.create_task(called(engine, ann, 1))
    await until_row(engine, ann.id, lambda row: row.inbox == 1)
    assert not [claim for name, claim in store.calls if name == "claim" and claim.resting]
    gates["busy"].set()
    assert await asyncio.wait_for(asked, LIMIT) == 2


async def test_a_worker_that_stops_leaves_the_call_to_others(opened: Open) -> None:
    engine, store = await opened(work=True)
    ann = await resting(engine)
    claimed = store.before = Gate("claim", of_what_rests)
    asked = asyncio.create_task(called(engine, ann, 1))
    await asyncio.wait_for(claimed.reached.wait(), LIMIT)
    assert engine.worker is not None
    engine.worker.scheduler.drain()
    await until_row(engine, ann.id, lambda row: row.inbox == 1)
    asked.cancel()
    claimed.open.set()
    there, _ = await opened(work=True)
    await until_row(there, ann.id, lambda row: row.seen == 1)
    assert await there.process(ann.id).call(Account.history) == ["+1"]


async def test_a_timer_that_has_not_fired_yet_fires_in_its_time(opened: Open) -> None:
    engine, _ = await opened(work=True)
    alarm = await engine.start(Alarm.made)
    before = await until_row(engine, alarm.id, lambda row: row.owner is None and row.state is not None)
    assert await alarm.call(Alarm.press) == 1
    after = await until_row(engine, alarm.id, lambda row: row.owner is None and row.seen == 1)
    assert (after.due_at, after.reminder) == (before.due_at, False)


async def test_a_workflow_at_rest_that_waits_for_calls_is_called_like_a_machine(opened: Open) -> None:
    engine, store = await opened(work=True)
    handle = await engine.start(clerk, 3)
    for n in range(3):
        await until_row(engine, handle.id, lambda row: row.owner is None)
        store.calls.clear()
        assert await handle.call("question", 10, int) == 10 + n
        assert "send" not in doors(store)
    assert await handle.result(LIMIT) == 3


@workflow
async def busy() -> None:
    """Takes a place until it may end."""
    await waits_for_its_end()


@step
async def waits_for_its_end() -> None:
    await gates["busy"].wait()
